"""Tracking: a report of a job becomes its row in qbull_jobs.

Reports may come twice, or late: each has a version that rises with the job's life, and an older one changes nothing.
The rules here are pure, but for the one statement that writes a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from qbull.core.job import Begun, Ending, Garbage, body_of, created_ms_of, decode_begun, unseal

if TYPE_CHECKING:
    from psycopg import AsyncConnection

STATUS = {
    "w": "waiting",
    "d": "delayed",
    "a": "active",
    "c": "completed",
    "f": "failed",
    "x": "cancelled",
    "-": "removed",
}
ENDED = "cfx-"
_RANK = {"w": 0, "a": 1, "d": 2}
"""What comes later in one millisecond; an end comes last."""


class Line(msgspec.Struct, frozen=True):
    """A row of qbull_jobs."""

    job_id: str
    task: str
    key: str | None
    status: str
    attempts: int
    error_message: str | None
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    version: int


def line_of(letter: str, job_id: str, value: bytes, at_ms: int) -> Line | None:
    """The row that a report of this moment makes; None for one that cannot be read."""
    try:
        if letter == "a":
            begun = decode_begun(value)
            return _line(letter, job_id, begun.record, at_ms, begun=begun)
        if letter in "cfx":
            record, ending = unseal(value)
            return _line(letter, job_id, record, at_ms, ending=ending)
        return _line(letter, job_id, value, at_ms)
    except (Garbage, msgspec.DecodeError):
        return None


def _line(
    letter: str,
    job_id: str,
    record: bytes,
    at_ms: int,
    *,
    begun: Begun | None = None,
    ending: Ending | None = None,
) -> Line:
    body = body_of(record)
    attempts, error, worker, started, finished = body.attempt - 1, None, None, None, None
    version = at_ms * 4 + _RANK.get(letter, 3)
    created = created_ms_of(record) or at_ms
    if body.history:
        error = body.history[-1].error
    if begun is not None:
        attempts, worker = (
            body.attempt,
            begun.worker,
        )  # the delivery names the version, whenever this is written
        version = begun.delivered_ms * 4 + _RANK[letter]
        created = created_ms_of(record) or begun.delivered_ms
        started = at_ms - begun.running_ms
    if ending is not None:
        attempts, worker = ending.attempt or attempts, ending.worker or None
        error = ending.error
        created = created_ms_of(record) or ending.created_ms or at_ms
        started = int(at_ms - ending.duration_ms) if ending.duration_ms else None
        finished = at_ms
    elif letter == "-":
        finished = at_ms
    return Line(
        job_id=job_id,
        task=body.task,
        key=body.key,
        status=STATUS[letter],
        attempts=attempts,
        error_message=error and error.replace("\0", "\\0"),
        worker=worker,
        created_at=_moment(created),
        started_at=None if started is None else _moment(started),
        finished_at=None if finished is None else _moment(finished),
        updated_at=_moment(at_ms),
        version=version,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_COLUMNS = "job_id, task, key, status, attempts, error_message, worker, created_at, started_at, finished_at, updated_at, version"
_KINDS = """\
job_id text, task text, key text, status text, attempts integer, error_message text, worker text, created_at timestamptz,
started_at timestamptz, finished_at timestamptz, updated_at timestamptz, version bigint"""
# What happened first is kept where a later report does not say it.
WRITE = f"""\
INSERT INTO qbull_jobs AS j (app, queue, {_COLUMNS})
SELECT %(app)s, %(queue)s, {_COLUMNS} FROM json_to_recordset(%(lines)s::json) AS lines({_KINDS})
ON CONFLICT (job_id, queue, app) DO UPDATE SET
    task = excluded.task, key = excluded.key, status = excluded.status, attempts = excluded.attempts,
    error_message = excluded.error_message, worker = coalesce(excluded.worker, j.worker),
    created_at = least(excluded.created_at, j.created_at), started_at = coalesce(excluded.started_at, j.started_at),
    finished_at = excluded.finished_at, updated_at = excluded.updated_at, version = excluded.version
WHERE j.version < excluded.version"""


async def write(connection: AsyncConnection, app: str, queue: str, lines: Iterable[Line]) -> None:
    """Write down a batch; of several lines for one job the last in its life."""
    latest: dict[str, Line] = {}
    for line in lines:
        known = latest.get(line.job_id)
        if known is None or known.version < line.version:
            latest[line.job_id] = line
    if latest:
        packed = msgspec.json.encode(list(latest.values())).decode()
        await connection.execute(WRITE, {"app": app, "queue": queue, "lines": packed}, prepare=True)
