"""The periodic tasks of django-celery-beat: each becomes a schedule, or a job if it has a fixed time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from qbull.app import App
from qbull.compat.celery.crontab import crontab
from qbull.compat.celery.periodic import schedule_name
from qbull.core.options import Options
from qbull.core.schedule_rule import ScheduleOptions
from qbull.drain.deliver import JobImporter
from qbull.drain.django_rows import RowSource, models_of
from qbull.drain.message import CannotMove, ForeignJob, ForeignSchedule
from qbull.errors import DeclarationError, QbullError
from qbull.task import Call

_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1, "microseconds": 1e-6}


class BeatSource(RowSource):
    """The enabled periodic tasks. One that was moved is disabled.

    Args:
        app: The app with the tasks.
        importer: Knows the queues of the tasks.
    """

    def __init__(self, app: App, importer: JobImporter) -> None:
        self._app = app
        self._importer = importer
        self._models = models_of("django_celery_beat")

    async def rows(self) -> list[Any]:
        rows = self._models.PeriodicTask.objects.filter(enabled=True)
        related = rows.select_related("interval", "crontab", "solar", "clocked").order_by("pk")
        return await asyncio.to_thread(list, related)

    def names(self, row: Any) -> tuple[str, str, str]:
        return row.queue or "", row.task, row.name

    async def moved(self, row: Any) -> None:
        """Disable a row, and tell a beat that runs."""

        def write() -> None:
            self._models.PeriodicTask.objects.filter(pk=row.pk).update(enabled=False)
            self._models.PeriodicTasks.update_changed()

        await asyncio.to_thread(write)

    def foreign(self, row: Any) -> ForeignSchedule | ForeignJob:
        _check_row(row)
        queue = self._importer.home_of(row.task, row.queue or self._declared_queue(row.task))
        args, kwargs = _json(row, "args", list), _json(row, "kwargs", dict)
        if row.clocked is not None:
            at = row.clocked.clocked_time
            if at <= datetime.now(UTC):
                raise CannotMove(f"its time was {at:%Y-%m-%d %H:%M:%S} UTC; enqueue it, or delete it there")
            id = f"django-celery-beat-{row.pk}"
            return ForeignJob(id, at.isoformat(), queue.name, row.task, args, kwargs, at=at)
        spec = queue.tasks[self._importer.new_name_of(row.task)]
        try:
            Call(queue, spec, Options()).check(*args, **kwargs)
        except QbullError as error:
            raise CannotMove(f"{error}; change its arguments there") from None
        named = _named(spec.signature.parameters, args, kwargs)
        cron, rule = _rule(row)
        return ForeignSchedule(schedule_name(row.name), queue.name, row.task, named, rule, cron)

    def _declared_queue(self, task: str) -> str:
        """The queue that a task of a Celery app declares, because all queues have all of its tasks."""
        declared = getattr(self._app, "tasks", {}).get(self._importer.new_name_of(task))
        return "" if declared is None else str(declared.queue.name)


def _check_row(row: Any) -> None:
    for name, remedy in (
        ("exchange", "name the queue instead"),
        ("routing_key", "name the queue instead"),
        ("priority", "schedule another task that enqueues this one with the priority"),
    ):
        if getattr(row, name) not in (None, ""):
            raise CannotMove(f"it has {name}={getattr(row, name)!r}; {remedy}")
    if _json(row, "headers", dict):
        raise CannotMove("it has headers; schedule another task that enqueues this one with them")
    if row.solar is not None:
        raise CannotMove("it follows the sun; compute the next time in a task, and enqueue with at=…")
    if row.one_off and row.clocked is None:
        raise CannotMove("it runs once (one_off); enqueue it with countdown=… or eta=…, and delete it there")


def _rule(row: Any) -> tuple[str | None, ScheduleOptions]:
    """The cron expression, if there is one, and the rest of the rule."""
    rule = ScheduleOptions(start=row.start_time, end=row.expires)
    if row.interval is not None:
        rule["every"] = row.interval.every * _SECONDS[row.interval.period]
        return None, rule
    given = row.crontab
    if given is None:
        raise CannotMove("it has no schedule")
    try:
        fields = crontab(given.minute, given.hour, given.day_of_week, given.day_of_month, given.month_of_year)
    except DeclarationError as error:
        raise CannotMove(str(error)) from None
    rule["tz"] = str(given.timezone)
    return fields.expression, rule


def _json(row: Any, name: str, kind: type) -> Any:
    text = getattr(row, name) or ""
    try:
        value = msgspec.json.decode(text) if text else kind()
    except msgspec.MsgspecError as error:
        raise CannotMove(f"its {name} cannot be read: {error}") from None
    if not isinstance(value, kind):
        raise CannotMove(f"its {name} are {text:.60}, which is no {kind.__name__}")
    return value


def _named(parameters: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, as a schedule has them."""
    if len(args) > len(parameters) or not kwargs.keys() <= set(parameters):
        raise CannotMove("the task takes them as *args or **kwargs; name the parameters of the task")
    return {**dict(zip(parameters, args, strict=False)), **kwargs}
