"""The queue `maintenance`: by the clock, in the time zone of Ceres."""

from messages import alert
from queues import maintenance

import database
import qbull

CORDOBA = "America/Argentina/Cordoba"


@maintenance.cron("0 * * * *", tz=CORDOBA, name="clean-verification-tokens", catch_up="one")
def clean_verification_tokens() -> int:
    return database.remove_old_tokens()


@maintenance.cron("0 9 * * *", tz=CORDOBA, name="daily-report", catch_up="one")
async def daily_report() -> str:
    counts = [f"{municipality} {users}" for municipality, users in database.users_by_municipality()]
    text = f"Good morning. Registered: {', '.join(counts) or 'nobody yet'}."
    await alert.options(id=f"slack:report:{qbull.current_job().id}").enqueue(text=text)
    return text
