"""Wire: the shapes of what the API takes and gives. What is written here is what the OpenAPI document says.

A job, counts and the rest are made in qbull/wire.py, which the command line prints too; `shaped` holds them to these shapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from qbull.core.durability import Durability

S = TypeVar("S")

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
Text = Annotated[str, Meta(min_length=1, max_length=500)]
Seconds = Annotated[float, Meta(ge=0, le=316_224_000)]
State = Literal["waiting", "active", "delayed", "completed", "failed", "cancelled"]
Finished = Literal["completed", "failed", "cancelled"]


class Shape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Names are camelCase on the wire; what is not known is refused."""


def shaped(made: Any, shape: type[S]) -> S:
    """What was made elsewhere, in its shape."""
    return msgspec.convert(made, shape)


# Jobs.


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
    progress: Any
    created_at: Moment | None
    due_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    duration_ms: float | None
    partition: int
    schedule: str | None


class Jobs(Shape, kw_only=True):
    """`next` is the cursor of the page after this one; null where there is no more, or where `start` and `end` were asked for."""

    success: bool = True
    timestamp: Moment
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


class History(Shape, kw_only=True):
    """The runs of a job, the oldest first. `worker` is who has it now, or had it last; `crashes` is how often one died of it."""

    success: bool = True
    timestamp: Moment
    queue: str
    job_id: str
    attempts: list[Attempt]
    worker: str | None
    crashes: int


class JobOptions(Shape, kw_only=True):
    """As in Python: `delay`, `timeout` in seconds, `at` a moment, `priority` from 1 (first) to 10 (last)."""

    delay: Seconds | None = None
    at: Moment | None = None
    priority: Annotated[int, Meta(ge=1, le=10)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=316_224_000)] | None = None
    durability: Durability | None = None


class NewJob(Shape, kw_only=True):
    """A call of a task: its arguments by name."""

    task: Name
    payload: dict[str, Any] = {}
    options: JobOptions = msgspec.field(default_factory=JobOptions)


class Accepted(Shape, kw_only=True):
    """What became of a job. `created` is false where one with its id was there already."""

    success: bool = True
    job_id: str
    status: Literal["waiting", "delayed", "active", "completed", "failed", "cancelled", "removed"]
    timestamp: Moment
    created: bool | None = None


class JobsQuery(Shape, kw_only=True):
    """One state, from `start` up to `end`; or, with filters, `limit` at a time and on with `cursor`."""

    state: State = "waiting"
    start: Annotated[int, Meta(ge=0, le=1000)] = 0
    end: Annotated[int, Meta(ge=0, le=1000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    cursor: Annotated[str, Meta(max_length=4000)] | None = None


# Queues.


class Stats(Shape, kw_only=True):
    """`paused` is how many of the waiting ones are held back because the queue is paused."""

    name: str
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int
    paused: int
    total: int
    cancelled: int
    is_paused: bool
    oldest_waiting_at: Moment | None


class QueueStats(Stats, kw_only=True):
    """The counts of one queue."""

    success: bool = True
    timestamp: Moment


class AllStats(Shape, kw_only=True):
    """The counts of all queues by name."""

    success: bool = True
    timestamp: Moment
    queues: dict[str, Stats]


class Health(Shape, kw_only=True):
    """`message` says in words what is wrong, and where."""

    status: Literal["healthy", "unhealthy"]
    message: str
    details: dict[str, Stats]
    timestamp: Moment


class Alive(Shape, kw_only=True):
    """For load balancers."""

    status: Literal["ok", "away"]
    message: str


# People.


class Login(Shape, kw_only=True):
    """One of them: the password of the page, or a token."""

    password: Annotated[str, Meta(max_length=500)] | None = None
    token: Annotated[str, Meta(max_length=500)] | None = None


class Me(Shape, kw_only=True):
    """Who is calling, and what that may be shown and done."""

    success: bool = True
    timestamp: Moment
    name: str
    role: Literal["viewer", "admin"]
    how: Literal["token", "basic", "session"]
    sees_payloads: bool
    app: str
    version: str


class Done(Shape, kw_only=True):
    """It was done; `message` says what."""

    success: bool = True
    message: str
    timestamp: Moment


class NewToken(Shape, kw_only=True):
    """`expiresIn` is seconds; without it the token is good until it is revoked."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: Literal["viewer", "admin"]
    expires_in: Annotated[float, Meta(gt=0, le=316_224_000)] | None = None


class Token(Shape, kw_only=True):
    """What is known of a token. Nobody knows the token itself any more."""

    id: str
    name: str
    role: Literal["viewer", "admin"]
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    last_used_at: Moment | None


class Tokens(Shape, kw_only=True):
    """The newest first."""

    success: bool = True
    timestamp: Moment
    tokens: list[Token]


class CreatedToken(Shape, kw_only=True):
    """`token` is shown here and never again."""

    success: bool = True
    timestamp: Moment
    token: str
    details: Token


class AuditQuery(Shape, kw_only=True):
    """The newest first; `before` is the id of the last one seen."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: Annotated[str, Meta(pattern=r"^\d{1,20}-\d{1,20}$")] | None = None


class AuditEntry(Shape, kw_only=True):
    """Who did what, when, from where, and what it was answered with. `count` is more than 1 where several were counted together."""

    id: str
    at: Moment
    who: str
    role: str
    how: str
    action: str
    target: str
    status: int
    detail: dict[str, Any]
    address: str
    count: int


class AuditPage(Shape, kw_only=True):
    """`next` is what to ask for as `before`; null where there is no more."""

    success: bool = True
    timestamp: Moment
    entries: list[AuditEntry]
    next: str | None
