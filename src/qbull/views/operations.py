"""Shapes of operations: work on many jobs at a time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from qbull.core.record import State
from qbull.views.jobs import FilterShape
from qbull.views.shape import (
    AnswerShape,
    DurationSeconds,
    Instant,
    PositiveCount,
    Shape,
)

OperationAction = Literal["retry", "redrive", "cancel", "promote", "remove", "clean"]
RatePerSecond = Annotated[float, Meta(gt=0, le=1_000_000)]


class NewOperationBody(FilterShape, kw_only=True):
    """What is to be done with all jobs of a state that fit. `rate` is how many a second at most, `olderThan` how many seconds ago they ended."""

    action: OperationAction
    state: State | None = None
    older_than: DurationSeconds = 0.0
    limit: PositiveCount | None = None
    rate: RatePerSecond | None = None


class RedriveBody(FilterShape, kw_only=True):
    """Which dead letters run again; all of them without a filter. `rate` is the maximum per second."""

    limit: PositiveCount | None = None
    rate: RatePerSecond | None = None


class CleanBody(FilterShape, kw_only=True):
    """Which finished jobs to delete. Jobs that ended within the last `gracePeriod` milliseconds stay."""

    grace_period: Annotated[int, Meta(ge=0, le=316_224_000_000)] = 0
    limit: PositiveCount | None = None


class OperationView(Shape, kw_only=True):
    """`done` is to how many it was done, `lookedAt` how many were looked at; `total`, how many there were to look at when it began."""

    id: str
    action: str
    queue: str
    filter: dict[str, Any]
    by: str
    state: Literal["running", "done", "failed", "stopped"]
    done: int
    looked_at: int
    total: int | None
    started_at: Instant
    updated_at: Instant
    error: str | None


class OneOperationView(AnswerShape, kw_only=True):
    operation: OperationView


class OperationsView(AnswerShape, kw_only=True):
    """The newest first."""

    operations: list[OperationView]


class StartedView(AnswerShape, kw_only=True):
    """Ask at /api/operations/{operationId} how far it is. `count` is to how many it was done, where it has ended already."""

    operation_id: str
    state: Literal["running", "done", "failed", "stopped"]
    message: str
    count: int


class MatchingQuery(FilterShape, kw_only=True):
    state: State = "failed"


class MatchingView(AnswerShape, kw_only=True):
    """How many jobs fit. Where `exact` is false there may be more: only the first `lookedAt` were looked at."""

    queue: str
    state: State
    count: int
    exact: bool
    looked_at: int
