"""Shapes of bulk operations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from qbull.core.record import State
from qbull.views.jobs import FilterShape
from qbull.views.shape import (
    AnswerShape,
    DurationSeconds,
    Instant,
    Moment,
    PositiveCount,
    Shape,
    ShortText,
)

OperationAction = Literal["retry", "redrive", "cancel", "promote", "reschedule", "remove", "clean"]
RatePerSecond = Annotated[float, Meta(gt=0, le=1_000_000)]
ArgumentChanges = Annotated[dict[str, Any], Meta(min_length=1)]


class NewOperationBody(FilterShape, kw_only=True):
    """A bulk operation on all jobs of a state that match. `rate` is the maximum per second; `olderThan` is
    the minimum age in seconds since the job ended. With `reschedule`, the jobs run in `delay` seconds, or at
    the time `at`, such as tomorrow or 2h. With `cancel`, `reason` is the error of the jobs. With `retry` and
    `redrive`, `patch` changes the arguments: a JSON merge patch (RFC 7396), in which null deletes one.
    """

    action: OperationAction
    state: State | None = None
    older_than: DurationSeconds = 0.0
    limit: PositiveCount | None = None
    rate: RatePerSecond | None = None
    delay: DurationSeconds | None = None
    at: Moment | None = None
    reason: ShortText | None = None
    patch: ArgumentChanges | None = None


class RedriveBody(FilterShape, kw_only=True):
    """Which dead letters run again; all of them without a filter. `rate` is the maximum per second. `patch`
    changes their arguments: a JSON merge patch (RFC 7396), in which null deletes one.
    """

    limit: PositiveCount | None = None
    rate: RatePerSecond | None = None
    patch: ArgumentChanges | None = None


class PreviewedPatchBody(FilterShape, kw_only=True):
    """A retry with changed arguments, to look at before it is started."""

    patch: ArgumentChanges
    state: Literal["failed", "cancelled"] = "failed"


class PatchedJobView(Shape, kw_only=True):
    """The arguments of a job before and after the patch. `refusal` says why the job would stay as it is."""

    id: str
    task: str
    before: Any
    after: Any
    refusal: str | None


class PatchPreviewView(AnswerShape, kw_only=True):
    """The first jobs that the operation would change, up to five."""

    queue: str
    jobs: list[PatchedJobView]


class CleanBody(FilterShape, kw_only=True):
    """Which finished jobs to delete. Jobs that ended within the last `gracePeriod` milliseconds stay."""

    grace_period: Annotated[int, Meta(ge=0, le=316_224_000_000)] = 0
    limit: PositiveCount | None = None


class OperationView(Shape, kw_only=True):
    """A bulk operation. `done` jobs were changed, `lookedAt` were read, `total` matched the state at the
    start. `refused` jobs stay as they are, because the patch does not fit them;
    `refusal` is the reason for the first.
    """

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
    refused: int
    refusal: str | None


class OneOperationView(AnswerShape, kw_only=True):
    operation: OperationView


class OperationsView(AnswerShape, kw_only=True):
    """The newest first."""

    operations: list[OperationView]


class StartedView(AnswerShape, kw_only=True):
    """A started operation; /api/operations/{operationId} has its progress. `count` is the number of changed
    jobs if it has already ended.
    """

    operation_id: str
    state: Literal["running", "done", "failed", "stopped"]
    message: str
    count: int


class MatchingQuery(FilterShape, kw_only=True):
    state: State = "failed"


class MatchingView(AnswerShape, kw_only=True):
    """The number of matching jobs. If `exact` is false there may be more: only the first `lookedAt` were
    read.
    """

    queue: str
    state: State
    count: int
    exact: bool
    looked_at: int
