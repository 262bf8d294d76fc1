"""Shapes of jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from qbull.core.durability import Durability
from qbull.core.job_info import AttemptInfo, JobInfo
from qbull.core.log_level import LogLevel
from qbull.core.options import JOB_OPTIONS, OptionKind
from qbull.core.query_text import MAX_QUERY_CHARS
from qbull.core.record import State
from qbull.core.signals import MAX_SIGNAL_NAME_CHARS
from qbull.core.unique import UniqueMode
from qbull.core.why import ReasonCode
from qbull.views.shape import (
    MAX_API_DURATION_SECONDS,
    AnswerShape,
    DurationSeconds,
    Instant,
    Moment,
    ResourceName,
    Shape,
    ShortText,
    Timestamp,
)

QueryText = Annotated[str, Meta(max_length=MAX_QUERY_CHARS)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=MAX_API_DURATION_SECONDS)]


class JobsView(AnswerShape, kw_only=True):
    """A page of jobs. `next` is the cursor of the next page; null on the last page, and with `start` and
    `end`. `cut`: jobs between `start` and `end` were left out, because the answer would be too large;
    continue after the last one.
    """

    queue: str
    state: State
    jobs: list[JobInfo]
    next: str | None = None
    cut: bool = False


class HistoryView(AnswerShape, kw_only=True):
    """The runs of a job, the oldest first. `worker` has it now or had it last; `crashes`: how many workers
    died while running it.
    """

    queue: str
    job_id: str
    attempts: list[AttemptInfo]
    worker: str | None
    crashes: int


class LogLineView(Shape, kw_only=True):
    """A line that a task has logged."""

    at: Instant
    attempt: int
    text: str
    level: LogLevel = "info"


class LogsView(AnswerShape, kw_only=True):
    """The newest log lines of a job, in order."""

    queue: str
    job_id: str
    logs: list[LogLineView]


class PublishedView(AnswerShape, kw_only=True):
    """The values that a durable job has published, by name: the last one of each."""

    queue: str
    job_id: str
    published: dict[str, Any]


class StackShape(Shape, kw_only=True):
    """Where the task of a running job is. `kind` says how it runs; `stack` has the most recent call last."""

    worker: str
    kind: Literal["coroutine", "thread", "process"]
    stack: str


class StackView(StackShape, kw_only=True):
    """The stack of a running job, as its worker has reported it."""

    success: bool = True
    timestamp: Timestamp
    queue: str
    job_id: str


class LogsQuery(Shape, kw_only=True):
    """Maximum number of log lines, the newest."""

    last: Annotated[int, Meta(ge=1, le=1000)] = 1000


class ReasonView(Shape, kw_only=True):
    """One reason. `text` is for people, `code` with its `values` for programs. `jobId` is the job that it
    waits for, `worker` the worker that has that job. `since` and `until` are times; `at` is the one that
    matters.
    """

    code: ReasonCode
    text: str
    job: str | None = msgspec.field(name="jobId")
    worker: str | None
    since: Instant | None
    until: Instant | None
    at: Instant | None
    values: dict[str, str | int]


class WhyShape(Shape, kw_only=True):
    """The reasons why a job is not running, the most important first; `text` has all of them in one line."""

    queue: str
    id: str = msgspec.field(name="jobId")
    state: State
    text: str
    reasons: list[ReasonView]


class WhyView(WhyShape, kw_only=True):
    """The reasons why a job is not running, the most important first; `text` has all of them in one line."""

    success: bool = True
    timestamp: Timestamp


class UniqueBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Which one counts of several calls for the same thing: see Unique in Python."""

    window: PositiveSeconds | None = None
    by: list[ShortText] | None = None
    mode: UniqueMode = "first"


OPTION_SHAPES: dict[OptionKind, Any] = {
    "seconds": DurationSeconds,
    "duration": PositiveSeconds,
    "moment": Moment,
    "end": PositiveSeconds | Moment,
    "priority": Annotated[int, Meta(ge=1, le=10)],
    "weight": Annotated[int, Meta(ge=0, le=1_000_000_000)],
    "key": Annotated[str, Meta(min_length=1, max_length=1000)],
    "id": Annotated[str, Meta(min_length=1, max_length=200)],
    "unique": PositiveSeconds | UniqueBody,
    "durability": Durability,
}
"""The JSON type of each kind of option."""

JobOptionsBody = msgspec.defstruct(
    "JobOptionsBody",
    [(one.name, OPTION_SHAPES[one.kind] | None, None) for one in JOB_OPTIONS if one.in_json],
    module=__name__,
    namespace={
        "__doc__": "The options of a call, as in Python. Times are texts such as 2030-01-31T12:00:00Z."
    },
    rename="camel",
    forbid_unknown_fields=True,
    kw_only=True,
    frozen=True,
)
NO_JOB_OPTIONS = JobOptionsBody()


class NewJobBody(Shape, kw_only=True):
    """A call of a task: its arguments by name."""

    task: ResourceName
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    options: JobOptionsBody = NO_JOB_OPTIONS  # type: ignore[valid-type]


class RetryJobBody(Shape, kw_only=True):
    """A retry. `payload` replaces the arguments."""

    payload: dict[str, Any] | None = None


class RescheduleBody(Shape, kw_only=True):
    """When the job may run: in `delay` seconds, or at the time `at`, such as tomorrow or 2h."""

    delay: DurationSeconds | None = None
    at: Moment | None = None


class UpdateBody(Shape, kw_only=True):
    """All arguments of the job by name."""

    payload: dict[str, Any]


class CancellingBody(Shape, kw_only=True):
    """The reason for a cancellation."""

    reason: ShortText = "cancelled"


class SignalBody(Shape, kw_only=True):
    """A signal for a durable job. Of several signals with the same `id`, the job gets one."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_SIGNAL_NAME_CHARS)]
    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class AcceptedView(Shape, kw_only=True):
    """The outcome for a job. `created` is false if a job with this id already existed."""

    success: bool = True
    job_id: str
    status: Literal[
        "waiting", "delayed", "active", "completed", "failed", "cancelled", "cancelling", "removed", "sent"
    ]
    timestamp: Timestamp
    created: bool | None = None


class FilterShape(Shape, kw_only=True):
    """Job filters. `payload` is an argument and its value, as in user_id=u1 or items.0.sku=x; `after` and
    `before` compare the time at which a job finished, or was enqueued if it has not finished. They are times
    with a zone, dates in UTC, "today", "yesterday", "now", or durations before now, such as 2h or 7d. `q` is
    a query, as in `args.user_id:u1 -task:ping`.
    """

    task: ResourceName | None = None
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    error_contains: ShortText | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    payload: Annotated[str, Meta(pattern="^[^=]{1,200}=[^\x00]{0,500}$")] | None = None
    after: Moment | None = None
    before: Moment | None = None
    query: QueryText | None = msgspec.field(default=None, name="q")


class JobsQuery(FilterShape, kw_only=True):
    """Jobs of one state, from `start` to `end`; or pages of `limit` jobs with filters and a `cursor`."""

    state: State = "waiting"
    start: Annotated[int, Meta(ge=0, le=1000)] | None = None
    end: Annotated[int, Meta(ge=0, le=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: Annotated[str, Meta(max_length=80, pattern="^[0-9:/-]+$")] | None = None


class FailuresQuery(FilterShape, kw_only=True):
    """`scan` is the number of dead letters to read, the newest first."""

    scan: Annotated[int, Meta(ge=1, le=100_000)] = 10_000


class FailureGroupView(Shape, kw_only=True):
    """Dead letters with the same error. `error` is normalized, `lastError` the exact error of the newest.
    `cascade`: they failed because another job of their flow did.
    """

    fingerprint: str
    error: str
    count: int
    tasks: list[str]
    first_at: Instant
    last_at: Instant
    last: str = msgspec.field(name="lastId")
    last_error: str
    cascade: bool = False


class FailuresView(AnswerShape, kw_only=True):
    """Groups of dead letters, the most frequent first; `leftOut` groups are not shown."""

    queue: str
    groups: list[FailureGroupView]
    left_out: int = 0
