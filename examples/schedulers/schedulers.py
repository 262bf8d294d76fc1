"""The schedulers: four providers of readings that are asked by the clock, and the cleaning of logs.

Any number of servers import this module and run a worker; each tick is one job, in one of them.
"""

import os

import readings

import qbull

app = qbull.App()


def scheduler(provider: str, cron: str, delay: float, keep: qbull.Keep) -> None:
    """A queue of its own for a provider, so that one that is away keeps no other from being asked."""
    queue = app.queue(
        f"{provider}-sync",
        max_active=1,  # over all servers; concurrency=1 would count in each of them
        retry=qbull.Retry(attempts=3, backoff="exponential", delay=delay),
        timeout=30,
        keep=keep,
        alert=qbull.Alert(repeated=5),
    )

    @queue.cron(os.environ.get(f"{provider.upper()}_CRON", cron), name=provider)
    def sync() -> int:
        """How many readings were new. Asks for what came after the last one, and saving one twice changes nothing."""
        job = qbull.current_job()
        since = readings.last(provider)
        job.log_sync(f"asking for readings since {since}")
        found = readings.fetch(provider, since)
        job.progress_sync(50)
        return readings.save(provider, found, job.planned_at)


scheduler("serpram", "*/5 * * * *", delay=5, keep=qbull.Keep(completed=50, failed=100))
scheduler("ayt", "* * * * *", delay=3, keep=qbull.Keep(completed=100, failed=200))
scheduler("esinfa", "*/10 * * * *", delay=5, keep=qbull.Keep(completed=50, failed=100))
scheduler("sercoamb", "*/15 * * * *", delay=5, keep=qbull.Keep(completed=50, failed=100))

maintenance = app.queue("maintenance", max_active=1, alert=True)


@maintenance.cron("0 3 * * *", name="log-cleaning", catch_up="one")
def clean_logs() -> int:
    """How many lines were older than a week."""
    return readings.forget_runs(older_than_days=7)
