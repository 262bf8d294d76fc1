"""Tracking: a report of a job becomes its row in qbull_jobs.

Reports may come twice, or late. Each has a version that rises during the job's life, and an older version
changes nothing. The rules here are pure, except for the one statement that writes a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from qbull.core.record import (
    Ending,
    StartReport,
    UnreadableRecord,
    body_of,
    crashes_of,
    created_ms_of,
    decode_start_report,
    split_ending,
)

if TYPE_CHECKING:
    from psycopg import AsyncConnection

STATUS_BY_LETTER = {
    "w": "waiting",
    "d": "delayed",
    "a": "active",
    "c": "completed",
    "f": "failed",
    "x": "cancelled",
    "-": "removed",
}
ENDED_LETTERS = "fx-"
_LETTER_RANK = {"w": 0, "a": 1, "d": 2}
"""The order of reports within one millisecond; an end comes last."""


class TrackedJob(msgspec.Struct, frozen=True):
    """A row of qbull_jobs.

    None stands for a value that the report lacks; `task`, `key` and `created_at` are in another report.
    `attempts` counts started attempts, also those whose worker died.
    """

    job_id: str
    task: str | None
    key: str | None
    status: str
    attempts: int
    error_message: str | None
    worker: str | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    version: int

    def after(self, before: TrackedJob) -> TrackedJob:
        """This line, with the values that only an earlier line of the same job has."""
        ended = before.finished_at
        if ended is not None and self.created_at is not None and self.created_at > ended:
            return self  # Another job with the same id.
        return msgspec.structs.replace(
            self,
            task=self.task or before.task,
            key=self.key or before.key,
            worker=self.worker or before.worker,
            created_at=self.created_at or before.created_at,
            started_at=self.started_at or before.started_at,
        )


def tracked_job(letter: str, job_id: str, value: bytes, at_ms: int) -> TrackedJob | None:
    """The row for a report of this time; None for a report that cannot be read."""
    try:
        if letter == "a":
            return _tracked_start(job_id, decode_start_report(value), at_ms)
        if letter in "cfx":
            record, ending = split_ending(value)
            body = body_of(record)
            line = tracked_ending(letter, job_id, ending, at_ms)
            created = created_ms_of(record) or ending.created_ms or at_ms
            attempts = (line.attempts or body.attempt - 1) + crashes_of(record)
            return msgspec.structs.replace(
                line, task=body.task, key=body.key, created_at=_moment(created), attempts=attempts
            )
        return _tracked_waiting(letter, job_id, value, at_ms)
    except (UnreadableRecord, msgspec.DecodeError):
        return None


def tracked_ending(letter: str, job_id: str, ending: Ending, at_ms: int) -> TrackedJob:
    """The row of a job that has ended, from its ending."""
    return TrackedJob(
        job_id=job_id,
        task=None,
        key=None,
        status=STATUS_BY_LETTER[letter],
        attempts=ending.attempt,
        error_message=_text(ending.error),
        worker=ending.worker or None,
        created_at=_moment(ending.created_ms) if ending.created_ms else None,
        started_at=_moment(at_ms - ending.duration_ms) if ending.duration_ms else None,
        finished_at=_moment(at_ms),
        updated_at=_moment(at_ms),
        version=at_ms * 4 + 3,
    )


def _tracked_start(job_id: str, begun: StartReport, at_ms: int) -> TrackedJob:
    """The version comes from the delivery, whenever this is written."""
    body = body_of(begun.record)
    return TrackedJob(
        job_id=job_id,
        task=body.task,
        key=body.key,
        status="active",
        attempts=body.attempt + crashes_of(begun.record),
        error_message=_text(body.history[-1].error) if body.history else None,
        worker=begun.worker,
        created_at=_moment(created_ms_of(begun.record) or begun.delivered_ms),
        started_at=_moment(at_ms - begun.running_ms),
        finished_at=None,
        updated_at=_moment(at_ms),
        version=begun.delivered_ms * 4 + _LETTER_RANK["a"],
    )


def _tracked_waiting(letter: str, job_id: str, record: bytes, at_ms: int) -> TrackedJob:
    body = body_of(record)
    return TrackedJob(
        job_id=job_id,
        task=body.task,
        key=body.key,
        status=STATUS_BY_LETTER[letter],
        attempts=body.attempt - 1 + crashes_of(record),
        error_message=_text(body.history[-1].error) if body.history else None,
        worker=None,
        created_at=_moment(created_ms_of(record) or at_ms),
        started_at=None,
        finished_at=_moment(at_ms) if letter == "-" else None,
        updated_at=_moment(at_ms),
        version=at_ms * 4 + _LETTER_RANK.get(letter, 3),
    )


def _text(error: str | None) -> str | None:
    """Remove the characters that PostgreSQL cannot store."""
    return error and error.replace("\0", "\\0")


def _moment(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


_JOB_COLUMNS = """\
job_id, task, key, status, attempts, error_message, worker,
created_at, started_at, finished_at, updated_at, version"""
_JOB_COLUMN_TYPES = """\
job_id text, task text, key text, status text, attempts integer, error_message text, worker text,
created_at timestamptz, started_at timestamptz, finished_at timestamptz, updated_at timestamptz,
version bigint"""
_JOB_VALUES = _JOB_COLUMNS.replace("task,", "coalesce(task, '?'),").replace(
    "created_at,", "coalesce(created_at, updated_at),"
)
# If the first report of a job is lost, because nobody has read for too long, its task is "?". A job that
# was enqueued after the stored end is another job with the same id: nothing of the earlier one
# is kept.
UPSERT_JOBS_SQL = f"""\
INSERT INTO qbull_jobs AS j (app, queue, {_JOB_COLUMNS})
SELECT %(app)s, %(queue)s, {_JOB_VALUES}
FROM json_to_recordset(%(lines)s::json) AS lines({_JOB_COLUMN_TYPES})
ON CONFLICT (job_id, queue, app) DO UPDATE SET
    task = CASE excluded.task WHEN '?' THEN j.task ELSE excluded.task END,
    key = coalesce(excluded.key, j.key),
    status = excluded.status, attempts = excluded.attempts, error_message = excluded.error_message,
    worker = CASE WHEN excluded.created_at > j.finished_at
        THEN excluded.worker ELSE coalesce(excluded.worker, j.worker) END,
    created_at = CASE WHEN excluded.created_at > j.finished_at
        THEN excluded.created_at ELSE least(excluded.created_at, j.created_at) END,
    started_at = CASE WHEN excluded.created_at > j.finished_at
        THEN excluded.started_at ELSE coalesce(excluded.started_at, j.started_at) END,
    finished_at = excluded.finished_at,
    updated_at = excluded.updated_at, version = excluded.version
WHERE j.version < excluded.version"""


async def write(connection: AsyncConnection, app: str, queue: str, lines: Iterable[TrackedJob]) -> None:
    """Write a batch. Several lines of one job become its last one, with the values of the others."""
    latest: dict[str, TrackedJob] = {}
    for line in lines:
        known = latest.get(line.job_id)
        if known is None:
            latest[line.job_id] = line
        elif known.version < line.version:
            latest[line.job_id] = line.after(known)
        else:
            latest[line.job_id] = known.after(line)
    if latest:
        packed = msgspec.json.encode(list(latest.values())).decode()
        await connection.execute(UPSERT_JOBS_SQL, {"app": app, "queue": queue, "lines": packed}, prepare=True)
