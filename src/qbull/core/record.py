"""A job as Redis stores it.

A record is a short header, which the Lua scripts read, and a body. `RECORD_HEADER` lays out the header.
`Body` and `ExtendedBody` list the values of the body, which is a msgpack array:

    byte 1      layout version
    byte 2      priority, 1 to 10
    byte 3      flags, the sum of: 1 if the job holds its lane although it is not in the ready stream;
                2 if its end, 4 if everything that happens to it is reported to PostgreSQL;
                8 if other jobs of its flow wait for its end, 16 if it waits for others (core/flow.py);
                32 if it left its lane to wait and returns to its head, 64 if it never leaves it so;
                128 if its priority counts among the waiting jobs of its lane
    byte 4      crashes: how many times a worker died while it ran
    byte 5-10   when it was enqueued: milliseconds on the server's clock, big-endian. 0 while the job is in
                the entry that it was enqueued with, because the id of that entry has the time
    byte 11     length of the lane's digest: 0, 8, or 9 if jobs of the lane run one at a time (core/route.py)
    byte 12-…   the lane's digest, then the body

The Lua scripts get the same numbers from core/record_layout.py. They read only the payload, the expiry and
the suspension of a body. A finished job keeps its record and has an Ending behind it.

During a rolling deploy, workers of two versions read each other's records. Add fields at the end of a body or
an ending, with defaults: readers skip the values that they do not know, and `repack` keeps them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from qbull.core.flow import NEVER_DUE_MS, Dependent

State = Literal["waiting", "active", "delayed", "completed", "failed", "cancelled"]
STATES: tuple[State, ...] = get_args(State)

RECORD_VERSION = 1
DEFAULT_PRIORITY = 5
DEFAULT_MAX_CRASHES = 3
"""A job is not retried if its worker died this often while it ran, unless its queue has another limit."""
MAX_RECORDED_CRASHES = 255
MAX_HISTORY_ATTEMPTS = 20
MAX_KEPT_TRACEBACKS = 5
"""Earlier attempts of a job whose traceback is kept, the newest."""
MAX_KEPT_TRACEBACK_CHARS = 4_000
"""The end of such a traceback. The record of a job moves with it."""
ABSOLUTE_TIME_FROM_MS = 1_000_000_000_000
"""Smaller numbers are waits, larger ones are times."""
REPORT_END_FLAG, REPORT_ALL_FLAG = 2, 4
"""The reports for PostgreSQL: the end of a job, for the outbox; everything, for the table of jobs."""

HOLDS_LANE_FLAG = 1
"""The job holds its lane although it is not in the ready stream."""
RETURNS_TO_LANE_FLAG = 32
"""The job left its lane, which has no order, to wait for its next attempt. It comes first when it returns."""
KEEPS_LANE_FLAG = 64
"""The job holds its lane until its next attempt, even if the lane has no order: a later job replaces it."""
RANKED_FLAG = 128
"""The job has another priority than the usual one, and its lane no order: it waits in a list of its level."""


class HeaderField(NamedTuple):
    """A field of a record's header: the position of its first byte, from 0, and its length."""

    start: int
    size: int

    def of(self, record: bytes) -> bytes:
        return record[self.start : self.start + self.size]


RECORD_HEADER = {
    "version": HeaderField(0, 1),
    "priority": HeaderField(1, 1),
    "flags": HeaderField(2, 1),
    "crashes": HeaderField(3, 1),
    "created": HeaderField(4, 6),
    "lane_length": HeaderField(10, 1),
}
ENDING_LENGTH_BYTES = 4
"""The size of an ending's length, which follows the ending."""

_RECORD_HEADER_BYTES = sum(field.size for field in RECORD_HEADER.values())


class Attempt(msgspec.Struct, array_like=True, frozen=True):
    """A run that failed."""

    attempt: int
    at_ms: int
    duration_ms: float
    error: str
    worker: str
    stacktrace: str | None = None


def with_attempt(history: list[Attempt], attempt: Attempt) -> list[Attempt]:
    """The history with one more attempt, bounded in number and in bytes."""
    trace = attempt.stacktrace
    if trace is not None and len(trace) > MAX_KEPT_TRACEBACK_CHARS:
        trace = "…\n" + trace[-MAX_KEPT_TRACEBACK_CHARS:].partition("\n")[2]
        attempt = msgspec.structs.replace(attempt, stacktrace=trace)
    kept = [*history, attempt][-MAX_HISTORY_ATTEMPTS:]
    if len(kept) > MAX_KEPT_TRACEBACKS and kept[-MAX_KEPT_TRACEBACKS - 1].stacktrace is not None:
        old = kept[-MAX_KEPT_TRACEBACKS - 1]
        kept[-MAX_KEPT_TRACEBACKS - 1] = msgspec.structs.replace(old, stacktrace=None)
    return kept


class Body(msgspec.Struct, array_like=True):
    """The part of a record that only Python reads."""

    task: str
    payload: bytes
    key: str | None = None
    attempt: int = 1
    attempts: int = 0
    timeout: float | None = None
    history: list[Attempt] = []


class ExtendedBody(Body, array_like=True):
    """A body with the values that few jobs have. Other jobs are written without them and pay nothing."""

    schedule: str | None = None
    """The schedule that created the job."""
    expires: int | None = None
    """The time by which the job must start.

    Milliseconds after the enqueue; from ABSOLUTE_TIME_FROM_MS on, a time in milliseconds since 1970."""
    unique: str = ""
    """The name that decides the partition of a unique job without a lane."""
    row: int = 0
    """The row of the outbox that the job comes from, if its id may name several jobs."""
    trace: str = ""
    """The W3C trace context of the enqueue: traceparent, and tracestate in a line of its own."""
    headers: dict[str, str] | None = None
    """The values that middleware sent along."""
    flow: str = ""
    """The flow that the job belongs to."""
    tells: list[Dependent] = []
    """The jobs that wait for its end."""
    awaits: list[bytes] = []
    """The jobs that it waits for, if its payload is signed or encrypted: for each position the digests of the
    jobs that may report there (core/flow.py)."""
    bound_to: str = ""
    """The unique name that its payload is signed or encrypted for, instead of its id."""
    suspended: str = ""
    """Why a durable job has left its worker: "sleeping", "waiting" or "calling". Only true if delayed."""
    woken_ms: int = 0
    """The end of the sleep for which it has left its worker the last time, in milliseconds."""
    waits_for: list[str] = []
    """The signals that it waits for. Only true of a delayed job."""
    forked_from: str = ""
    """The job whose history it continues."""
    continued: int = 0
    """How often a durable job has started over with `continue_as`."""
    weight: int | None = None
    """How much of its shared limits the job takes, if the call gives it."""


class Ending(msgspec.Struct, array_like=True, frozen=True):
    """How a job finished. It follows the record in the completed, failed or cancelled stream."""

    attempt: int
    """0 if the record has the number."""
    duration_ms: float
    worker: str
    result: bytes | None = None
    error: str | None = None
    stacktrace: str | None = None
    created_ms: int = 0
    """When the job was enqueued, if its record does not have the time."""
    stored: str = ""
    """A reference to the result, if it is stored elsewhere."""


class StartReport(msgspec.Struct, array_like=True, frozen=True):
    """A worker's report of a running job: when it was delivered, how long it has run, and its record."""

    delivered_ms: int
    running_ms: int
    worker: str
    record: bytes


_encode = encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(ExtendedBody).decode
_decode_ending = msgspec.msgpack.Decoder(Ending).decode
decode_start_report = msgspec.msgpack.Decoder(StartReport).decode


_DEFAULT_VALUES: list[Any] = msgspec.msgpack.decode(_encode(ExtendedBody("", b"")))


class UnreadableRecord(ValueError):
    """The bytes are not a record that this version can read."""


_LANELESS_HEADERS = [bytes((RECORD_VERSION, priority, 0, 0)) + bytes(7) for priority in range(11)]

PLAIN_HEADER = _LANELESS_HEADERS[DEFAULT_PRIORITY]
"""The usual header: default priority, no lane, no reports.

For such a job, `pack` returns `PLAIN_HEADER + encode_body(body)`."""


def pack(body: Body, *, priority: int, lane: bytes, reports: int = 0) -> bytes:
    """A new job's record. The time is left empty: the server fills it in."""
    head = _LANELESS_HEADERS[priority]
    if reports:
        head = head[:2] + bytes((reports,)) + head[3:]
    if not lane:
        return head + _encode(body)
    return head[:-1] + bytes((len(lane),)) + lane + _encode(body)


def repack(record: bytes, body: Body) -> bytes:
    """The same job with another body, for the next attempt.

    Values that a later version has added behind those of `ExtendedBody` are kept.
    """
    at = _RECORD_HEADER_BYTES + record[10]
    packed = _encode(body)
    if _array_header(record, at)[1] > len(ExtendedBody.__struct_fields__):
        unknown = msgspec.msgpack.decode(record[at:])[len(ExtendedBody.__struct_fields__) :]
        known = msgspec.msgpack.decode(packed)
        defaults = _DEFAULT_VALUES[len(known) :]
        packed = _encode([*known, *defaults, *unknown])
    return record[:at] + packed


def _array_header(record: bytes, at: int) -> tuple[int, int]:
    """Where the values of the msgpack array at a position start, and their number; 0 if there is no array."""
    mark = record[at] if at < len(record) else 0
    if 0x90 <= mark <= 0x9F:
        return at + 1, mark & 0x0F
    if mark == 0xDC:
        return at + 3, int.from_bytes(record[at + 1 : at + 3], "big")
    return at + 1, 0


def record_for_retry(record: bytes, ending: Ending, finished_ms: int, payload: bytes | None = None) -> bytes:
    """A finished job's record for a retry: attempts count from 1 again, and the last run joins the history.

    A job that killed workers keeps their number: it runs alone, and its next crash is its last.
    """
    body = body_of(record)
    attempt = ending.attempt or body.attempt
    began = int(finished_ms - ending.duration_ms)
    error = ending.error or "no reason was given"
    ended = Attempt(attempt, began, ending.duration_ms, error, ending.worker, ending.stacktrace)
    body.history = with_attempt(body.history, ended)
    body.attempt = 1
    body.expires = None
    body.suspended, body.waits_for = "", []
    if payload is not None:
        body.payload = payload
    created = (
        record[4:10]
        if created_ms_of(record)
        else min(max(ending.created_ms, 0), NEVER_DUE_MS).to_bytes(6, "big")
    )
    return repack(record[:4] + created + record[10:], body)


def record_of_copy(record: bytes, body: Body) -> bytes:
    """The record of a new job like this one. The server fills in the time."""
    return repack(record[:2] + bytes((record[2] & REPORT_ALL_FLAG, 0)) + bytes(6) + record[10:], body)


def body_of_copy(body: ExtendedBody) -> ExtendedBody:
    """The body of a new job with the same task, arguments and options, but no past and no expiry."""
    return ExtendedBody(
        body.task,
        body.payload,
        body.key,
        attempts=body.attempts,
        timeout=body.timeout,
        trace=body.trace,
        headers=body.headers,
    )


def body_of(record: bytes) -> ExtendedBody:
    if len(record) <= _RECORD_HEADER_BYTES or record[0] != RECORD_VERSION:
        raise UnreadableRecord(_why_unreadable(record))
    try:
        return _decode_body(memoryview(record)[_RECORD_HEADER_BYTES + record[10] :])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableRecord(f"record cannot be read: {error}") from None


def _why_unreadable(record: bytes) -> str:
    if record and record[0] > RECORD_VERSION and record[0] < 32:
        return f"record has layout {record[0]}, this qbull reads up to {RECORD_VERSION}; upgrade the worker"
    return f"record cannot be read: {record[:40]!r}"


def priority_of(record: bytes) -> int:
    return record[1]


def crashes_of(record: bytes) -> int:
    return record[3] if len(record) > _RECORD_HEADER_BYTES else 0


def without_crashes(record: bytes) -> bytes:
    """The record of a job whose crashes no longer count."""
    return record[:3] + b"\0" + record[4:]


def holds_lane(record: bytes) -> bool:
    return len(record) > _RECORD_HEADER_BYTES and record[2] & 1 == 1


def created_ms_of(record: bytes) -> int:
    return int.from_bytes(record[4:10], "big")


def with_created(record: bytes, created_ms: int) -> bytes:
    """The record of a job that was enqueued at this time."""
    return record[:4] + min(max(created_ms, 0), NEVER_DUE_MS).to_bytes(6, "big") + record[10:]


def lane_of(record: bytes) -> bytes:
    return (
        record[_RECORD_HEADER_BYTES : _RECORD_HEADER_BYTES + record[10]]
        if len(record) > _RECORD_HEADER_BYTES
        else b""
    )


def expires_ms(body: ExtendedBody, created_ms: int) -> int | None:
    """The time by which the job must start."""
    if body.expires is None:
        return None
    return body.expires if body.expires >= ABSOLUTE_TIME_FROM_MS else created_ms + body.expires


def encode_start_report(report: StartReport) -> bytes:
    return _encode(report)


def task_in(head: bytes) -> str:
    """The task's name, from the first bytes of a record; empty if they are too few or not a record's."""
    if len(head) <= _RECORD_HEADER_BYTES or head[0] != RECORD_VERSION:
        return ""
    at, _ = _array_header(head, _RECORD_HEADER_BYTES + head[10])
    mark = head[at] if at < len(head) else 0
    if 0xA0 <= mark <= 0xBF:
        at, length = at + 1, mark & 0x1F
    elif mark == 0xD9 and at + 1 < len(head):
        at, length = at + 2, head[at + 1]
    else:
        return ""
    name = head[at : at + length]
    return name.decode("utf-8", "replace") if len(name) == length else ""


def append_ending(ending: Ending) -> bytes:
    """The ending as it is appended to a record: msgpack, then its length in four bytes."""
    packed = _encode(ending)
    return packed + len(packed).to_bytes(4, "big")


def split_ending(finished: bytes) -> tuple[bytes, Ending]:
    """The record of a finished job, and its ending."""
    length = int.from_bytes(finished[-4:], "big")
    try:
        return finished[: -4 - length], _decode_ending(finished[-4 - length : -4])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return finished, Ending(0, 0.0, "?", error="the record of its end cannot be read")


def due_datetime(milliseconds: int | None) -> datetime | None:
    """When a delayed job is due; None for one that waits for others, or is not delayed."""
    return None if milliseconds is None or milliseconds >= NEVER_DUE_MS else to_datetime(milliseconds)


def to_datetime(milliseconds: int) -> datetime:
    """A time from milliseconds. A damaged record may exceed the calendar; then it is the last day."""
    return datetime.fromtimestamp(min(max(milliseconds, 0), NEVER_DUE_MS) / 1000, UTC)
