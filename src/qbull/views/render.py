"""Wire: jobs, counts and schedules as JSON. The command line prints these shapes, and programs rely on them.

Names are as in the REST API; times are ISO 8601 in UTC with a Z, durations milliseconds. What is not known is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from qbull.core.record import JobInfo
from qbull.core.record import to_datetime as moment_of
from qbull.core.why import Why
from qbull.manage.search import FailureGroup
from qbull.schedules import ScheduleInfo
from qbull.store.read.partition_report import PartitionReport, PartitionStatus
from qbull.store.verbs.live_settings import LIVE_SETTING_TYPES, LiveSettingChange, LiveSettings
from qbull.store.verbs.progress import LogLine


class SupportsCounts(Protocol):
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
    def cancelled(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def paused(self) -> bool: ...
    @property
    def oldest_waiting_ms(self) -> int | None: ...


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
        "progress": info.progress,
        "createdAt": moment(info.created_at),
        "dueAt": moment(info.due_at),
        "startedAt": moment(info.started_at),
        "finishedAt": moment(info.finished_at),
        "durationMs": None if info.duration_ms is None else round(info.duration_ms, 3),
        "partition": info.partition,
        "schedule": info.schedule,
    }


def stats(name: str, counts: SupportsCounts) -> dict[str, Any]:
    """`paused` is how many of the waiting ones are held back because the queue is paused."""
    return {
        "name": name,
        "waiting": counts.waiting,
        "active": counts.active,
        "completed": counts.completed,
        "failed": counts.failed,
        "delayed": counts.delayed,
        "paused": counts.waiting if counts.paused else 0,
        "total": counts.total,
        "cancelled": counts.cancelled,
        "isPaused": counts.paused,
        "oldestWaitingAt": _at(counts.oldest_waiting_ms),
    }


def live(now: LiveSettings, changes: Sequence[LiveSettingChange]) -> dict[str, Any]:
    """What is in force for a queue, and who has changed what; the newest change first."""
    return {
        "paused": now.paused,
        "settings": {name: getattr(now.settings, name) for name in LIVE_SETTING_TYPES},
        "changed": {
            name: {"value": one.value, "by": one.by, "at": moment(one.at)}
            for name, one in now.changed.items()
        },
        "history": [
            {
                "at": moment(change.at),
                "by": change.by,
                "setting": change.setting,
                "before": change.before,
                "after": change.after,
            }
            for change in changes
        ],
    }


def log_line(line: LogLine) -> dict[str, Any]:
    return {"at": moment(line.at), "attempt": line.attempt, "text": line.text}


def failure_group(group: FailureGroup) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "error": group.error,
        "count": group.count,
        "tasks": list(group.tasks),
        "firstAt": moment(group.first_at),
        "lastAt": moment(group.last_at),
        "lastId": group.last,
    }


def schedule(info: ScheduleInfo) -> dict[str, Any]:
    last = info.last
    return {
        "name": info.name,
        "queue": info.queue,
        "task": info.task,
        "cron": info.cron,
        "every": info.every,
        "tz": info.tz,
        "args": info.args,
        "key": info.key,
        "catchUp": info.catch_up,
        "catchUpLimit": info.catch_up_limit,
        "overlap": info.overlap,
        "jitter": info.jitter,
        "start": moment(info.start),
        "end": moment(info.end),
        "source": info.source,
        "paused": info.paused,
        "next": [moment(at) for at in info.next],
        "lastRun": None
        if last is None
        else {
            "jobId": last.job_id,
            "plannedAt": moment(last.planned_at),
            "firedAt": moment(last.fired_at),
            "state": last.state,
            "error": last.error,
        },
        "fired": info.fired,
        "skipped": info.skipped,
        "missed": info.missed,
        "problem": info.problem,
    }


def why(answer: Why) -> dict[str, Any]:
    return {
        "id": answer.id,
        "queue": answer.queue,
        "state": answer.state,
        "text": str(answer),
        "reasons": [
            {
                "code": reason.code,
                "text": reason.text,
                "job": reason.job,
                "worker": reason.worker,
                "since": moment(reason.since),
                "until": moment(reason.until),
            }
            for reason in answer.reasons
        ],
    }


def worker(id: str, host: str, pid: int, queues: dict[str, int]) -> dict[str, Any]:
    return {"id": id, "host": host, "pid": pid, "queues": queues}


def partition_report_view(found: PartitionReport) -> dict[str, Any]:
    return {
        "queue": found.queue,
        "partitions": [_partition(partition) for partition in found.partitions],
        "longLanes": [
            {
                "partition": lane.partition,
                "key": lane.key,
                "waiting": lane.waiting,
                "oldestWaitingAt": _at(lane.oldest_ms),
            }
            for lane in found.hot
        ],
        "haltedLanes": [
            {
                "partition": lane.partition,
                "key": lane.key,
                "waiting": lane.waiting,
                "jobId": lane.job,
                "since": _at(lane.since_ms),
            }
            for lane in found.halted
        ],
        "misfits": [
            {
                "kind": misfit.kind,
                "serious": misfit.serious,
                "fact": misfit.fact,
                "next": misfit.next_step,
                "partitions": list(misfit.partitions),
                "workers": list(misfit.workers),
            }
            for misfit in found.misfits
        ],
    }


def _partition(partition: PartitionStatus) -> dict[str, Any]:
    lease = partition.lease
    return {
        "partition": partition.number,
        "draining": partition.draining,
        "readers": [
            {
                "worker": reader.worker,
                "host": reader.host,
                "sharing": reader.sharing,
                "since": _at(reader.since_ms),
            }
            for reader in partition.readers
        ],
        "lease": None
        if lease is None
        else {"owner": lease.owner, "epoch": lease.epoch, "since": _at(lease.since_ms)},
        "waiting": partition.counts.waiting,
        "inLanes": partition.counts.in_lanes,
        "active": partition.counts.active,
        "delayed": partition.counts.delayed,
        "failed": partition.counts.failed,
        "oldestWaitingAt": _at(partition.counts.oldest_waiting_ms),
    }


def _at(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else moment(moment_of(milliseconds))


def moment(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
