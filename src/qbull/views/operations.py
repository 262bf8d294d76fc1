"""Shapes of operations: work on many jobs at a time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from qbull.views.jobs import Filter
from qbull.views.shape import Count, Moment, Name, Said, Seconds, Shape, State, Text

Action = Literal["retry", "redrive", "cancel", "promote", "remove", "clean"]
PerSecond = Annotated[float, Meta(gt=0, le=1_000_000)]


class NewOperation(Filter, kw_only=True):
    """What is to be done with all jobs of a state that fit. `rate` is how many a second at most, `olderThan` how many seconds ago they ended."""

    action: Action
    state: State | None = None
    older_than: Seconds = 0.0
    limit: Count | None = None
    rate: PerSecond | None = None


class Redrive(Shape, kw_only=True):
    """Which dead letters go round again; all where nothing is said."""

    limit: Count | None = None
    task: Name | None = None
    error_contains: Text | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    rate: PerSecond | None = None


class Clean(Shape, kw_only=True):
    """`gracePeriod` is milliseconds: jobs that ended later stay."""

    grace_period: Annotated[int, Meta(ge=0, le=316_224_000_000)] = 0
    limit: Count | None = None


class Operation(Shape, kw_only=True):
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
    started_at: Moment
    updated_at: Moment
    error: str | None


class OneOperation(Said, kw_only=True):
    operation: Operation


class Operations(Said, kw_only=True):
    """The newest first."""

    operations: list[Operation]


class Started(Said, kw_only=True):
    """Ask at /api/operations/{operationId} how far it is. `count` is to how many it was done, where it has ended already."""

    operation_id: str
    state: Literal["running", "done", "failed", "stopped"]
    message: str
    count: int


class MatchingQuery(Filter, kw_only=True):
    state: State = "failed"


class Matching(Said, kw_only=True):
    """How many jobs fit. Where `exact` is false there may be more: only the first `lookedAt` were looked at."""

    queue: str
    state: State
    count: int
    exact: bool
    looked_at: int
