"""BullMQ's and Bull's jobs on Redis: a hash for each job, and lists and sorted sets of ids for each state.

Both use the same names. Bull has no `meta` key, keeps prioritized jobs in its list of waiting jobs, and has
another formula for its backoff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from qbull.core.retry import RETRY_HEADER
from qbull.drain.bullmq_options import as_arguments, json_of, priority_of, retry_header_of
from qbull.drain.bullmq_schedules import (
    BullScheduleRecord,
    read_schedule,
    schedule_messages,
    schedule_name,
)
from qbull.drain.message import CannotMove, ForeignFailure, ForeignJob, ForeignSchedule, SourceMessage
from qbull.drain.source import MessagePage, SourceCollection, SourceServer, Taken

DELAYED_SCORE_FACTOR = 0x1000
"""The score of a delayed job is its time in milliseconds, times this, plus a number for its order."""
MARKER_PREFIX = b"0:"
"""Entries of BullMQ's list of waiting jobs that are no jobs: they wake up its workers."""
JOB_KEY_SUFFIXES = ("", ":logs", ":lock", ":dependencies", ":processed", ":failed", ":unsuccessful")
DEFAULT_BULL_PREFIX = "bull"

RetrySource = Literal["job", "task"]
"""Which policy a moved job is retried by: its own, or that of its task here."""


class BullRecord(msgspec.Struct):
    """A job while it is set aside. It is complete, so that its hash is not needed any more."""

    id: str
    queue: str
    state: str
    is_bull: bool
    fields: dict[str, bytes]
    due_ms: float = 0.0
    locked: bool = False


BullMessage = tuple[Literal["job", "schedule"], msgspec.Raw]


@dataclass(frozen=True)
class BullmqOptions:
    """How to read a server of BullMQ or Bull.

    Args:
        prefix: BullMQ's `prefix`.
        zone: The time zone of a cron pattern that has none.
        retry: Whether jobs keep their attempts and backoff.
        snake_case: Whether the argument `userId` becomes `user_id`.
        active: Whether to move jobs that workers have started and no worker has locked.
        failed: Whether to move failed jobs.
    """

    prefix: str = DEFAULT_BULL_PREFIX
    zone: str = "UTC"
    retry: RetrySource = "job"
    snake_case: bool = False
    active: bool = False
    failed: bool = True


class BullmqSource:
    """The jobs of BullMQ and Bull."""

    def __init__(self, old: SourceServer, options: BullmqOptions | None = None) -> None:
        self.old = old
        self._options = options or BullmqOptions()
        self._prefix = self._options.prefix
        self._left_schedules: set[str] = set()
        self._queues: list[str] = []
        self._is_bull: dict[str, bool] = {}

    async def queues(self) -> list[str]:
        """Return the queues that have counted a job, or that BullMQ has described."""
        start = f"{self._prefix}:"
        found = set()
        for suffix in (":id", ":meta"):
            for name in await self.old.names(f"{start}*{suffix}"):
                found.add(name[len(start) : -len(suffix)])
        return sorted(found)

    async def collections(self, queue: str) -> list[SourceCollection]:
        """Return the schedules first, then the jobs by state."""
        self._queues.append(queue)
        base = f"{self._prefix}:{queue}:"
        is_bull = self._is_bull[queue] = not await self.old.call("EXISTS", base + "meta")
        priorities = base + "priority" if is_bull else ""
        found = [
            SourceCollection(queue, "schedule", base + "repeat", base + "delayed"),
            SourceCollection(queue, "tail", base + "wait", priorities),
            SourceCollection(queue, "tail", base + "paused", priorities),
            SourceCollection(queue, "member", base + "prioritized"),
            SourceCollection(queue, "member", base + "delayed", state="delayed"),
            SourceCollection(queue, "member", base + "waiting-children"),
        ]
        if self._options.active:
            found.append(SourceCollection(queue, "tail", base + "active", state="active"))
        if self._options.failed:
            found.append(SourceCollection(queue, "member", base + "failed", state="failed"))
        return found

    async def held(self) -> int:
        """Return the number of jobs that workers have started."""
        return sum(
            [int(await self.old.call("LLEN", f"{self._prefix}:{queue}:active")) for queue in self._queues]
        )

    async def page(self, collection: SourceCollection, skip: int) -> MessagePage:
        values = await self.old.values(collection, skip)
        base = f"{self._prefix}:{collection.queue}:"
        if collection.kind == "schedule":
            return len(values), await schedule_messages(self.old, base, collection.queue, values)
        found = []
        for value, score in values:
            if value.startswith(MARKER_PREFIX):
                continue
            fields = await self._fields(base, value.decode())
            due_ms = 0.0
            if collection.state == "delayed":
                due_ms = score / DELAYED_SCORE_FACTOR
                # The next run of a schedule moves with the schedule.
                schedule = _schedule_of(fields)
                if schedule and await self.old.call("ZSCORE", base + "repeat", schedule) is not None:
                    continue
            found.append(await self._message(collection, value.decode(), fields, due_ms))
        return len(values), found

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        return await self.old.set_aside(collection, messages)

    def stays(self, name: str) -> None:
        """Remember a schedule that stays: BullMQ makes its next run when the one before starts."""
        self._left_schedules.add(name)

    def job(self, stored: bytes) -> ForeignJob | ForeignSchedule:
        kind, raw = msgspec.msgpack.decode(stored, type=BullMessage)
        if kind == "schedule":
            schedule = msgspec.msgpack.decode(raw, type=BullScheduleRecord)
            return read_schedule(schedule, zone=self._options.zone, snake_case=self._options.snake_case)
        return self._job(msgspec.msgpack.decode(raw, type=BullRecord))

    def _job(self, record: BullRecord) -> ForeignJob:
        fields = record.fields
        if "data" not in fields:
            raise CannotMove("its record is gone from the server")
        if record.locked:
            raise CannotMove("a worker is running it; stop the workers, and run the drain again")
        if "parentKey" in fields or "children" in fields:
            raise CannotMove("it is part of a flow; let BullMQ run it")
        schedule = _schedule_of(fields)
        if schedule and schedule_name(record.queue, schedule) in self._left_schedules:
            raise CannotMove(f'schedule "{schedule}" stays, and needs this run to plan the next one')
        options = json_of(fields.get("opts")) or {}
        is_failed = record.state == "failed"
        made = 0 if is_failed else int(fields.get("atm") or fields.get("attemptsMade") or 0)
        headers = {}
        if self._options.retry == "job":
            headers[RETRY_HEADER] = retry_header_of(options, made, is_bull=record.is_bull)
        args, kwargs = as_arguments(json_of(fields["data"]), snake_case=self._options.snake_case)
        return ForeignJob(
            id=record.id,
            stamp=fields.get("timestamp", b"").decode(),
            queue=record.queue,
            task=fields.get("name", b"").decode(),
            args=args,
            kwargs=kwargs,
            at=datetime.fromtimestamp(record.due_ms / 1000, UTC) if record.due_ms else None,
            priority=priority_of(fields, options),
            timeout=float(options["timeout"]) / 1000 if options.get("timeout") else None,
            headers=headers,
            failure=_failure(fields) if is_failed else None,
        )

    async def _fields(self, base: str, id: str) -> dict[str, bytes]:
        flat = await self.old.call("HGETALL", base + id)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {name.decode("utf-8", "replace"): value for name, value in pairs}

    async def _message(
        self, collection: SourceCollection, id: str, fields: dict[str, bytes], due_ms: float
    ) -> SourceMessage:
        queue, base = collection.queue, f"{self._prefix}:{collection.queue}:"
        if await self.old.call("EXISTS", f"{base}{id}:dependencies", f"{base}{id}:processed"):
            fields = {**fields, "children": b"yes"}
        locked = collection.state == "active" and bool(await self.old.call("EXISTS", f"{base}{id}:lock"))
        leftovers = [f"{base}{id}{suffix}" for suffix in JOB_KEY_SUFFIXES]
        deduplicated = fields.get("deid")
        if deduplicated is not None:
            mark = f"{base}de:{deduplicated.decode('utf-8', 'replace')}"
            if await self.old.call("GET", mark) == id.encode():
                leftovers.append(mark)
        is_bull = self._is_bull[queue]
        record = BullRecord(id, queue, collection.state, is_bull, fields, due_ms, locked)
        stored = msgspec.msgpack.encode(("job", record))
        return SourceMessage(f"{queue}:{id}", id.encode(), stored, leftovers)


def _schedule_of(fields: Mapping[str, bytes]) -> str | None:
    """The key of the schedule that has made a job."""
    if "rjk" in fields:
        return fields["rjk"].decode()
    try:
        repeat = (json_of(fields.get("opts")) or {}).get("repeat") or {}
    except CannotMove:
        return None
    key: Any = repeat.get("key")
    return key if isinstance(key, str) else None


def _failure(fields: Mapping[str, bytes]) -> ForeignFailure:
    traces = json_of(fields.get("stacktrace")) or []
    return ForeignFailure(
        error=fields.get("failedReason", b"").decode("utf-8", "replace").strip('"'),
        attempts=int(fields.get("atm") or fields.get("attemptsMade") or 1),
        stacktrace="\n".join(str(trace) for trace in traces[:1]) or None,
        created_ms=int(float(fields.get("timestamp") or 0)),
    )
