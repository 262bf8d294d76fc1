"""Schedule info: the public shape of a schedule, defined once.

Python, the REST API, `qbull schedules --json` and the dashboard read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from qbull.core.codec import decode_untyped
from qbull.core.cron import in_zone
from qbull.core.record import State
from qbull.core.schedule import CatchUp, Overlap, Schedule, protected_value
from qbull.core.schedule_state import SchedulePlan

PREVIEW_COUNT = 5


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of a schedule, by a tick or by a call. `state` is None if the job is no longer kept."""

    job_id: str
    planned_at: datetime | None
    fired_at: datetime | None
    state: State | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """Everything that is known about a schedule.

    Args:
        name: the name of the schedule.
        queue: the queue of its task.
        task: the name of its task.
        cron: the cron expression, if it has one.
        every: seconds between two runs, if it has no expression.
        tz: the time zone of the expression.
        args: the arguments of the runs.
        key: the key of the runs.
        catch_up: what happens to runs that were missed.
        overlap: what happens if the run before has not ended.
        catch_up_limit: maximum number of missed runs that are caught up.
        jitter: maximum random delay of a run, in seconds.
        start: no run before this time.
        end: no run after this time.
        source: whether the code declares it, or a call at run time.
        paused: whether it is paused.
        next: the next planned times.
        last: the last run.
        fired: number of runs so far.
        skipped: number of runs skipped because of an overlap.
        missed: number of runs that were missed.
        problem: why it cannot run, if so.
    """

    name: str
    queue: str
    task: str
    cron: str | None
    every: float | None
    tz: str
    args: dict[str, Any]
    key: str | None
    catch_up: CatchUp
    overlap: Overlap
    catch_up_limit: int
    jitter: float
    start: datetime | None
    end: datetime | None
    source: Literal["code", "run time"]
    paused: bool
    next: tuple[datetime, ...]
    last: LastRun | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    problem: str | None = None


def _shown_arguments(schedule: Schedule) -> dict[str, Any]:
    """The arguments, or the name of the codec if nobody can read them without a key."""
    protected = protected_value(schedule)
    if protected is None:
        return dict(decode_untyped(bytes(schedule.args)))
    shown: dict[str, Any] = decode_untyped(protected)
    return dict(shown.get("args") or {}) if "task" in shown else shown


def schedule_info(
    schedule: Schedule,
    plan: SchedulePlan,
    now_ms: int,
    last: LastRun | None = None,
    problem: str | None = None,
) -> ScheduleInfo:
    """The public shape of a schedule with its plan, at the server's time."""
    is_paused = plan.paused_ms is not None
    return ScheduleInfo(
        name=schedule.name,
        queue=schedule.queue,
        task=schedule.task,
        cron=schedule.cron,
        every=None if schedule.every_ms is None else schedule.every_ms / 1000,
        tz=schedule.tz,
        args=_shown_arguments(schedule),
        key=schedule.key,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        catch_up_limit=schedule.catch_up_limit,
        jitter=schedule.jitter_ms / 1000,
        start=None if schedule.start_ms is None else in_zone(schedule.start_ms, schedule.tz),
        end=None if schedule.end_ms is None else in_zone(schedule.end_ms, schedule.tz),
        source="code" if plan.own is None else "run time",
        paused=is_paused,
        next=()
        if is_paused
        else tuple(in_zone(at, schedule.tz) for at in islice(schedule.ticks(now_ms), PREVIEW_COUNT)),
        last=last,
        fired=plan.fired,
        skipped=plan.skipped,
        missed=plan.missed,
        problem=problem,
    )
