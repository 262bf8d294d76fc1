"""Schedules of another library: checked against the task, and made as schedules of the app."""

from __future__ import annotations

from qbull.app import App
from qbull.core.schedule_rule import ScheduleRule
from qbull.drain.message import CannotMove, ForeignSchedule
from qbull.drain.prepared import PreparedSchedule
from qbull.errors import NotFound, QbullError
from qbull.store.audit import own_entry


async def prepare_schedule(app: App, schedule: ForeignSchedule, path: str) -> PreparedSchedule:
    """Check a schedule of the task at "queue/task". Raises CannotMove with the reason."""
    rule = ScheduleRule(schedule.cron, **schedule.rule)
    try:
        await app.schedules._unchecked(schedule.id, path, rule, schedule.kwargs)
    except QbullError as error:
        raise CannotMove(f"{error}; declare it in the code, and remove it there") from None
    return PreparedSchedule(schedule.id, path, schedule.kwargs, schedule.rule, schedule.cron)


async def has_schedule(app: App, name: str) -> bool:
    try:
        await app.schedules.get(name)
    except NotFound:
        return False
    return True


async def deliver_schedule(app: App, schedule: PreparedSchedule) -> None:
    """Make a schedule. One that an interrupted drain has made stays as it is."""
    if not await has_schedule(app, schedule.name):
        with own_entry():
            await app.schedules.upsert(
                schedule.name, schedule.path, cron=schedule.cron, args=schedule.args, **schedule.rule
            )
