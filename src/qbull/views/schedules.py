"""Shapes of schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from qbull.views.shape import LONGEST, Moment, Said, Seconds, Shape, State


class LastRun(Shape, kw_only=True):
    """`state` is null where the job is not kept any more."""

    job_id: str
    planned_at: Moment | None
    fired_at: Moment | None
    state: State | None
    error: str | None


class Schedule(Shape, kw_only=True):
    """`every` and `jitter` are seconds; `next` are the next runs, none while it is paused."""

    name: str
    queue: str
    task: str
    cron: str | None
    every: float | None
    tz: str
    args: Any
    key: str | None
    catch_up: Literal["skip", "one", "all"]
    catch_up_limit: int
    overlap: Literal["skip", "allow"]
    jitter: float
    start: Moment | None
    end: Moment | None
    source: Literal["code", "run time"]
    paused: bool
    next: list[Moment]
    last_run: LastRun | None
    fired: int
    skipped: int
    missed: int
    problem: str | None


class Schedules(Said, kw_only=True):
    """By name."""

    schedules: list[Schedule]


class OneSchedule(Said, kw_only=True):
    schedule: Schedule


class NewSchedule(Shape, kw_only=True):
    """`cron` or `every` (seconds). `task` is "queue/task", or the task's name where only one queue has it."""

    task: Annotated[
        str, Meta(min_length=1, max_length=201, pattern=r"^([A-Za-z0-9._-]{1,100}/)?[A-Za-z0-9._-]{1,100}$")
    ]
    cron: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    every: Annotated[float, Meta(gt=0, le=LONGEST)] | None = None
    tz: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    catch_up: Literal["skip", "one", "all"] = "skip"
    overlap: Literal["skip", "allow"] | None = None
    catch_up_limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    jitter: Seconds = 0.0
    start: Moment | None = None
    end: Moment | None = None


class PreviewQuery(Shape, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=1000)] = 5


class Preview(Said, kw_only=True):
    """The next planned instants, in UTC (`next`) and in the schedule's zone (`local`); as if it were not paused."""

    name: str
    tz: str
    next: list[Moment]
    local: list[Moment]


class Ran(Shape, kw_only=True):
    """The job that was made."""

    success: bool = True
    message: str
    job_id: str
    timestamp: Moment
