"""Shapes of the report about slow tasks and long runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from qbull.views.shape import AnswerShape, Instant, ResourceName, Shape


class SlowQuery(Shape, kw_only=True):
    """The queue, or all; and how many tasks and jobs."""

    queue: ResourceName | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 20


class TaskDurationsView(Shape, kw_only=True):
    """How long the runs of a task took, over all workers, since the queue exists. In milliseconds."""

    queue: str
    task: str
    runs: int
    mean_ms: float
    p50_ms: float
    p95_ms: float


class LongRunView(Shape, kw_only=True):
    """A running job. `runningMs` is how long its worker has had it."""

    queue: str
    id: str
    task: str
    attempt: int
    worker: str | None
    started_at: Instant | None
    running_ms: float


class SlowShape(Shape, kw_only=True):
    """The slowest tasks by their 95th percentile, and the jobs that have been running longest."""

    tasks: list[TaskDurationsView]
    running: list[LongRunView]


class SlowView(AnswerShape, kw_only=True):
    """The slowest tasks by their 95th percentile, and the jobs that have been running longest."""

    tasks: list[TaskDurationsView]
    running: list[LongRunView]
