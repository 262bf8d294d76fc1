"""Wire: jobs and counts as JSON. The command line prints these shapes, and programs rely on them.

Names are as in the REST API; times are ISO 8601 in UTC with a Z, durations milliseconds. What is not known is null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

from qbull.core.job import JobInfo


class Counted(Protocol):
    """How many jobs are in which state."""

    @property
    def waiting(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def delayed(self) -> int: ...
    @property
    def total(self) -> int: ...


def job(info: JobInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "queue": info.queue,
        "task": info.task,
        "state": info.state,
        "key": info.key,
        "priority": info.priority,
        "payload": info.payload,
        "result": info.result,
        "error": info.error,
        "stacktrace": info.stacktrace,
        "failedReason": info.error if info.state == "failed" else None,
        "attempt": info.attempt,
        "maxAttempts": info.max_attempts,
        "progress": None,
        "createdAt": moment(info.created_at),
        "dueAt": moment(info.due_at),
        "startedAt": moment(info.started_at),
        "finishedAt": moment(info.finished_at),
        "durationMs": None if info.duration_ms is None else round(info.duration_ms, 3),
        "partition": info.partition,
        "schedule": None,
    }


def stats(name: str, counts: Counted) -> dict[str, Any]:
    return {
        "name": name,
        "waiting": counts.waiting,
        "active": counts.active,
        "completed": counts.completed,
        "failed": counts.failed,
        "delayed": counts.delayed,
        "paused": False,
        "total": counts.total,
    }


def worker(id: str, host: str, pid: int, queues: dict[str, int]) -> dict[str, Any]:
    return {"id": id, "host": host, "pid": pid, "queues": queues}


def moment(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
