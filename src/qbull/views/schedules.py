"""Shapes of schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from qbull.core.record import State
from qbull.core.schedule import CatchUp, Overlap
from qbull.core.schedule_runs import RunOutcome
from qbull.views.shape import (
    MAX_API_DURATION_SECONDS,
    AnswerShape,
    DurationSeconds,
    Instant,
    Moment,
    Shape,
    Timestamp,
)


class LastRunView(Shape, kw_only=True):
    """The last run of a schedule. `state` is null if its job is not retained any more."""

    job_id: str
    planned_at: Instant | None
    fired_at: Instant | None
    state: State | None
    error: str | None


class ScheduleView(Shape, kw_only=True):
    """A schedule. `every` and `jitter` are seconds; `next` are the next runs, none while it is paused."""

    name: str
    queue: str
    task: str
    cron: str | None
    every: float | None
    tz: str
    args: Any
    key: str | None
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap
    jitter: float
    start: Instant | None
    end: Instant | None
    source: Literal["code", "run time"]
    paused: bool
    next: list[Instant]
    last: LastRunView | None = msgspec.field(name="lastRun")
    fired: int
    skipped: int
    missed: int
    problem: str | None


class SchedulesView(AnswerShape, kw_only=True):
    """All schedules by name."""

    schedules: list[ScheduleView]


class OneScheduleView(AnswerShape, kw_only=True):
    schedule: ScheduleView


class NewScheduleBody(Shape, kw_only=True):
    """A schedule to create: `cron`, or `every` in seconds. `task` is "queue/task", or a task's name if only
    one queue has it.
    """

    task: Annotated[
        str, Meta(min_length=1, max_length=201, pattern=r"^([A-Za-z0-9._-]{1,100}/)?[A-Za-z0-9._-]{1,100}$")
    ]
    cron: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    every: Annotated[float, Meta(gt=0, le=MAX_API_DURATION_SECONDS)] | None = None
    tz: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    catch_up: CatchUp = "skip"
    overlap: Overlap | None = None
    catch_up_limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    jitter: DurationSeconds = 0.0
    start: Moment | None = None
    end: Moment | None = None


class PreviewQuery(Shape, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=1000)] = 5


class Preview(AnswerShape, kw_only=True):
    """The next runs, in UTC (`next`) and in the schedule's zone (`local`), as if it were not paused."""

    name: str
    tz: str
    next: list[Instant]
    local: list[Timestamp]


class ScheduleRunView(Shape, kw_only=True):
    """The job that a schedule has created."""

    success: bool = True
    message: str
    job_id: str
    timestamp: Timestamp


class PastRunView(Shape, kw_only=True):
    """A run of a schedule. `outcome` is the state of its job, "skipped", "missed", or null if the job is no
    longer kept. `durationMs` is the time of its last attempt.
    """

    job_id: str | None
    fired_at: Instant
    outcome: RunOutcome | None
    duration_ms: float | None


class PastRunsView(AnswerShape, kw_only=True):
    """The newest runs of a schedule, up to 30, the newest first."""

    name: str
    runs: list[PastRunView]


class ScheduleDayView(Shape, kw_only=True):
    """The newest runs of a schedule, up to 30, the newest first, and its planned times of the next 24 hours,
    up to 100; `more` if there are others.
    """

    name: str
    queue: str
    task: str
    paused: bool
    runs: list[PastRunView]
    next: list[Instant]
    more: bool


class ScheduleDaysView(AnswerShape, kw_only=True):
    """The newest and the planned runs of all schedules, by name."""

    schedules: list[ScheduleDayView]
