"""The read side: states, counts and details of jobs. Changes no job, and no call reads more than it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qbull.core.codec import decode_untyped
from qbull.core.job_info import JobInfo, attempt_info
from qbull.core.layout import index_in_generation
from qbull.core.progress import Progress, read_progress
from qbull.core.record import (
    Ending,
    ExtendedBody,
    State,
    UnreadableRecord,
    body_of,
    crashes_of,
    created_ms_of,
    due_datetime,
    expires_ms,
    priority_of,
    record_for_retry,
    split_ending,
    to_datetime,
)
from qbull.store.clock import clock_shift_ms
from qbull.store.connection import fan_out
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition

POSITION_PREFIXES: dict[State, bytes] = {"completed": b"c", "failed": b"f", "cancelled": b"x"}
"""The first letter of a finished job's position."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of a queue's jobs in each state."""

    waiting: int = 0
    active: int = 0
    delayed: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    in_lanes: int = 0
    """Jobs that wait behind others of their key."""
    entries: int = 0
    """Deliveries in ready streams, including those that workers hold."""
    oldest_waiting_ms: int | None = None
    totals: dict[str, int] = field(default_factory=dict)
    paused: bool = False
    limited: int = 0
    """Jobs that wait for a shared limit or for tokens of a host."""

    @property
    def total(self) -> int:
        """All jobs except cancelled ones."""
        return self.unfinished + self.completed + self.failed

    @property
    def unfinished(self) -> int:
        return self.waiting + self.active + self.delayed

    @property
    def runnable(self) -> int:
        """Jobs that run, can run now, or will be due: all unfinished jobs except those behind others."""
        return self.entries + self.delayed + self.limited

    def __add__(self, other: Counts) -> Counts:
        oldest = [ms for ms in (self.oldest_waiting_ms, other.oldest_waiting_ms) if ms is not None]
        names = {*self.totals, *other.totals}
        return Counts(
            self.waiting + other.waiting,
            self.active + other.active,
            self.delayed + other.delayed,
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.in_lanes + other.in_lanes,
            self.entries + other.entries,
            min(oldest) if oldest else None,
            {name: self.totals.get(name, 0) + other.totals.get(name, 0) for name in names},
            limited=self.limited + other.limited,
        )


class StoredJob(msgspec.Struct, frozen=True):
    """A job as the server has it."""

    id: str
    state: State
    record: bytes
    ending: Ending | None = None
    due_ms: int | None = None
    finished_ms: int | None = None
    worker: str | None = None
    partition: int = 0
    entry_ms: int = 0
    """The time of its entry: the time of enqueueing, if the record does not have it."""
    started_ms: int | None = None
    """When a worker got it, if it is active."""
    progress: Progress | None = None
    position: bytes = b""
    """Its position, if it was asked for. It changes when the job moves or finishes once more."""

    @property
    def size(self) -> int:
        """About the bytes that the job takes in an answer."""
        ending = self.ending
        if ending is None:
            return len(self.record)
        return len(self.record) + len(ending.result or b"") + len(ending.stacktrace or "")

    def body(self) -> ExtendedBody:
        try:
            return body_of(self.record)
        except UnreadableRecord:
            return ExtendedBody(task="?", payload=self.record)

    def info(self, queue: str, attempts: int | None) -> JobInfo:
        body, ending, told = self.body(), self.ending, self.progress
        readable = body.task != "?"
        finished = self.finished_ms
        started = self.started_ms
        if finished is not None and ending is not None:
            started = int(finished - ending.duration_ms)
        error = ending.error if ending is not None else (body.history[-1].error if body.history else None)
        return JobInfo(
            id=self.id,
            queue=queue,
            task=body.task,
            state=self.state,
            key=body.key,
            priority=priority_of(self.record) if readable else 5,
            payload=decode_untyped(body.payload),
            result=_displayable_result(ending),
            error=error,
            stacktrace=ending.stacktrace if ending is not None else None,
            failed_reason=error if self.state == "failed" else None,
            attempt=(ending.attempt if ending is not None else 0) or body.attempt,
            max_attempts=body.attempts or attempts,
            progress=told.percent if told is not None else None,
            progress_done=told.done if told is not None else None,
            progress_total=told.total if told is not None else None,
            progress_note=told.note if told is not None else None,
            created_at=to_datetime(self.created_ms() if readable else finished or 0),
            due_at=due_datetime(self.due_ms),
            expires_at=None
            if body.expires is None
            else to_datetime(expires_ms(body, self.created_ms()) or 0),
            started_at=None if started is None else to_datetime(started),
            finished_at=None if finished is None else to_datetime(finished),
            duration_ms=round(ending.duration_ms, 3) if ending is not None else None,
            timeout=body.timeout,
            partition=index_in_generation(self.partition),
            worker=(ending.worker if ending is not None else self.worker) or None,
            crashes=crashes_of(self.record) if readable else 0,
            history=tuple(attempt_info(attempt) for attempt in body.history),
            schedule=body.schedule,
            flow=body.flow or None,
            suspended=body.suspended or None if self.state == "delayed" else None,
            waits_for=tuple(body.waits_for) if self.state == "delayed" else (),
            forked_from=body.forked_from or None,
            continued=body.continued,
        )

    def again(self, payload: bytes | None = None) -> bytes:
        """The record of a finished job, ready to run again. Raises Garbage if it cannot be run."""
        assert self.ending is not None
        return record_for_retry(self.record, self.ending, self.finished_ms or 0, payload)

    def created_ms(self) -> int:
        return created_ms_of(self.record) or (
            self.ending.created_ms if self.ending is not None else self.entry_ms
        )


def _displayable_result(ending: Ending | None) -> Any:
    """A result that can be displayed; for an offloaded one, its address."""
    if ending is None:
        return None
    if ending.stored:
        return {"stored": ending.stored}
    return decode_untyped(ending.result) if ending.result is not None else None


async def find(partition: Partition, id: str) -> StoredJob | None:
    """A job of a partition; None if the partition does not have it."""
    return (await find_all(partition, [id]))[0]


@idempotent
async def find_all(partition: Partition, ids: Sequence[str]) -> list[StoredJob | None]:
    """For each of these ids what `find` returns."""
    replies = await partition.server.script("find", partition.base, *ids)
    return [_found(partition, id, reply) if reply else None for id, reply in zip(ids, replies, strict=True)]


def _found(partition: Partition, id: str, reply: list[Any]) -> StoredJob:
    said, state, record, at, worker, since_ms = reply
    kind: State = state.decode()
    progress = read_progress(said)
    if kind == "delayed":
        return StoredJob(
            id, kind, record, due_ms=int(float(at or 0)), partition=partition.number, progress=progress
        )
    if kind in ("completed", "failed", "cancelled"):
        position = POSITION_PREFIXES[kind] + at
        return StoredJob(
            id,
            kind,
            *split_ending(record),
            finished_ms=ms_of(at),
            partition=partition.number,
            position=position,
            progress=progress,
        )
    entry_ms = ms_of(at) if at else 0
    return StoredJob(
        id,
        kind,
        record,
        worker=worker.decode() or None,
        partition=partition.number,
        entry_ms=entry_ms,
        started_ms=since_ms or None,
        progress=progress,
    )


@idempotent
async def count(partition: Partition) -> Counts:
    return _counts(await partition.server.script("count", partition.base))


@idempotent
async def counts(partitions: Sequence[Partition]) -> list[Counts]:
    """The counts of each of these partitions."""
    if not partitions:
        return []
    replies = await fan_out.run_scripts(
        partitions[0].server, "count", [(partition.base,) for partition in partitions]
    )
    return [_counts(reply) for reply in replies]


def _counts(reply: list[Any]) -> Counts:
    waiting, active, delayed, completed, failed, cancelled, in_lanes, entries, oldest, flat, limited = reply
    totals = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
    oldest_ms = ms_of(oldest) if oldest else None
    return Counts(
        waiting,
        active,
        delayed,
        completed,
        failed,
        cancelled,
        in_lanes,
        entries,
        oldest_ms,
        totals,
        limited=limited,
    )


def ms_of(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])


# Questions of `qbull doctor` about the server itself.


@idempotent
async def server_time(target: Store | Partition) -> float:
    """The clock of the server, in seconds since the epoch."""
    seconds, microseconds = await target.server.call("TIME")
    return int(seconds) + int(microseconds) / 1e6 + await clock_shift_ms(target.server) / 1000


async def probe_script(store: Store) -> None:
    """Run a script that reads a partition which does not exist."""
    await store.server.script("count", store.names.partition("-", 0))


async def silent_workers(store: Store) -> list[str]:
    """Workers whose heartbeats have expired, and whose deliveries are not reclaimed yet."""
    return await store.heartbeat(0, [])
