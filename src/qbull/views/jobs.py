"""Shapes of jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from qbull.core.durability import Durability
from qbull.core.why import Code
from qbull.views.shape import LONGEST, Moment, Name, Said, Seconds, Shape, State, Text


class Job(Shape, kw_only=True):
    """Times are ISO 8601 in UTC, durations milliseconds; what is not known is null."""

    id: str
    queue: str
    task: str
    state: State
    key: str | None
    priority: int
    payload: Any
    result: Any
    error: str | None
    stacktrace: str | None
    failed_reason: str | None
    attempt: int
    max_attempts: int | None
    progress: float | None
    created_at: Moment | None
    due_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    duration_ms: float | None
    partition: int
    schedule: str | None


class Jobs(Said, kw_only=True):
    """`next` is the cursor of the page after this one; null where there is no more, or where `start` and `end` were asked for."""

    queue: str
    state: State
    jobs: list[Job]
    next: str | None = None


class Attempt(Shape, kw_only=True):
    """One run that did not succeed, or the one that did."""

    attempt: int
    at: Moment | None
    duration_ms: float
    error: str | None
    worker: str


class History(Said, kw_only=True):
    """The runs of a job, the oldest first. `worker` is who has it now, or had it last; `crashes` is how often one died of it."""

    queue: str
    job_id: str
    attempts: list[Attempt]
    worker: str | None
    crashes: int


class LogLine(Shape, kw_only=True):
    """What a task has logged."""

    at: Moment
    attempt: int
    text: str


class Logs(Said, kw_only=True):
    """In order, the newest lines."""

    queue: str
    job_id: str
    logs: list[LogLine]


class LogsQuery(Shape, kw_only=True):
    """How many lines at most, the newest."""

    last: Annotated[int, Meta(ge=1, le=1000)] = 1000


class Reason(Shape, kw_only=True):
    """`text` is for people, `code` with its `values` for programs. `jobId` is the one that it waits for, `at` until or since when."""

    code: Code
    text: str
    job_id: str | None
    at: Moment | None
    values: dict[str, str | int]


class Why(Said, kw_only=True):
    """What stands in the way of a job, in the order in which to deal with it."""

    queue: str
    job_id: str
    state: State
    reasons: list[Reason]


class JobOptions(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """As in Python: `delay` and `timeout` in seconds, `at` a moment, `expires` either; `priority` from 1 (first) to 10 (last)."""

    delay: Seconds | None = None
    at: Moment | None = None
    priority: Annotated[int, Meta(ge=1, le=10)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=LONGEST)] | None = None
    expires: Annotated[float, Meta(gt=0, le=LONGEST)] | Moment | None = None
    durability: Durability | None = None


NO_OPTIONS = JobOptions()


class NewJob(Shape, kw_only=True):
    """A call of a task: its arguments by name."""

    task: Name
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    options: JobOptions = NO_OPTIONS


class Again(Shape, kw_only=True):
    """`payload` is for running it with other arguments."""

    payload: dict[str, Any] | None = None


class Cancelling(Shape, kw_only=True):
    """Why it is cancelled."""

    reason: Text = "cancelled"


class Accepted(Shape, kw_only=True):
    """What became of a job. `created` is false where one with its id was there already."""

    success: bool = True
    job_id: str
    status: Literal[
        "waiting", "delayed", "active", "completed", "failed", "cancelled", "cancelling", "removed"
    ]
    timestamp: Moment
    created: bool | None = None


class Filter(Shape, kw_only=True):
    """Which jobs are meant. `payload` is an argument and what it is, as in user_id=u1 or items.0.sku=x; `after` and `before` are about when a
    job finished, or was enqueued where it has not.
    """

    task: Name | None = None
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    error_contains: Text | None = None
    fingerprint: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")] | None = None
    payload: Annotated[str, Meta(pattern="^[^=]{1,200}=[^\x00]{0,500}$")] | None = None
    after: Moment | None = None
    before: Moment | None = None


class JobsQuery(Filter, kw_only=True):
    """One state, from `start` up to `end`; or, with a filter, a cursor or a limit, `limit` at a time and on with `cursor`."""

    state: State = "waiting"
    start: Annotated[int, Meta(ge=0, le=1000)] | None = None
    end: Annotated[int, Meta(ge=0, le=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: Annotated[str, Meta(max_length=80, pattern="^[0-9:/-]+$")] | None = None


class FailuresQuery(Filter, kw_only=True):
    """`scan` is how many are looked at, the newest."""

    scan: Annotated[int, Meta(ge=1, le=100_000)] = 10_000


class FailureGroup(Shape, kw_only=True):
    """Dead letters that failed for the same reason; `error` is that without its details, `lastError` what the newest failed with."""

    fingerprint: str
    error: str
    count: int
    tasks: list[str]
    first_at: Moment
    last_at: Moment
    last_id: str
    last_error: str


class Failures(Said, kw_only=True):
    """The most frequent first; `leftOut` is how many more groups there are than are shown."""

    queue: str
    groups: list[FailureGroup]
    left_out: int = 0
