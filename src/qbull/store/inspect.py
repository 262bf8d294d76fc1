"""The read side: what is where. Nothing here changes a job, and no call reads more than it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qbull.core.codec import plain
from qbull.core.job import (
    Ending,
    Garbage,
    JobInfo,
    RareBody,
    State,
    again,
    body_of,
    crashes_of,
    created_ms_of,
    due,
    expires_ms,
    moment,
    priority_of,
    unseal,
)
from qbull.core.layout import place_of
from qbull.store import moved
from qbull.store.connect import ErrorReply, Server
from qbull.store.names import GROUP, ready
from qbull.store.note import read_progress
from qbull.store.partition import Partition
from qbull.store.store import LANE, TRAIN_MARK, Store

PLACES: dict[State, bytes] = {"completed": b"c", "failed": b"f", "cancelled": b"x"}
"""What the place of a finished job begins with."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs of a queue are in which state."""

    waiting: int = 0
    active: int = 0
    delayed: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    in_lanes: int = 0
    """How many are behind others of their key."""
    entries: int = 0
    """Deliveries that are in front of the workers, or in their hands."""
    oldest_waiting_ms: int | None = None
    totals: dict[str, int] = field(default_factory=dict)
    paused: bool = False

    @property
    def total(self) -> int:
        return self.waiting + self.active + self.delayed + self.completed + self.failed + self.cancelled

    @property
    def unfinished(self) -> int:
        return self.waiting + self.active + self.delayed

    @property
    def runnable(self) -> int:
        """What is running, can run now, or will be due: all that is unfinished but what waits behind others."""
        return self.entries + self.delayed

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
        )


@dataclass(frozen=True, slots=True)
class Found:
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
    """The time of the entry that it is in; when it was enqueued, where its record does not say."""
    progress: float | None = None
    place: bytes = b""
    """Where it lies, where that was asked for; it has another when it has moved, or finished once more."""

    def body(self) -> RareBody:
        try:
            return body_of(self.record)
        except Garbage:
            return RareBody(task="?", payload=self.record)

    def info(self, queue: str, attempts: int | None) -> JobInfo:
        body, ending = self.body(), self.ending
        readable = body.task != "?"
        finished = self.finished_ms
        started = int(finished - ending.duration_ms) if finished is not None and ending is not None else None
        return JobInfo(
            id=self.id,
            queue=queue,
            task=body.task,
            state=self.state,
            key=body.key,
            priority=priority_of(self.record) if readable else 5,
            payload=plain(body.payload),
            attempt=(ending.attempt if ending is not None else 0) or body.attempt,
            max_attempts=body.attempts or attempts,
            partition=place_of(self.partition),
            created_at=moment(self.created_ms() if readable else finished or 0),
            due_at=due(self.due_ms),
            started_at=None if started is None else moment(started),
            finished_at=None if finished is None else moment(finished),
            duration_ms=ending.duration_ms if ending is not None else None,
            result=_result(ending),
            error=ending.error if ending is not None else (body.history[-1].error if body.history else None),
            stacktrace=ending.stacktrace if ending is not None else None,
            crashes=crashes_of(self.record) if readable else 0,
            worker=(ending.worker if ending is not None else self.worker) or None,
            history=tuple(body.history),
            progress=self.progress,
            schedule=body.schedule,
            flow=body.flow or None,
            expires_at=None if body.expires is None else moment(expires_ms(body, self.created_ms()) or 0),
        )

    def again(self, payload: bytes | None = None) -> bytes:
        """The record of a finished job for going round again. Raises Garbage where it cannot be run."""
        assert self.ending is not None
        return again(self.record, self.ending, self.finished_ms or 0, payload)

    def created_ms(self) -> int:
        return created_ms_of(self.record) or (
            self.ending.created_ms if self.ending is not None else self.entry_ms
        )


def _result(ending: Ending | None) -> Any:
    """As it can be shown: of one that is kept elsewhere, where."""
    if ending is None:
        return None
    if ending.stored:
        return {"stored": ending.stored}
    return plain(ending.result) if ending.result is not None else None


async def find(partition: Partition, id: str) -> Found | None:
    reply = await partition.server.script("find", partition.base, id)
    if not reply:
        return None
    said, state, record, at, worker = reply
    kind: State = state.decode()
    progress = read_progress(said)
    if kind == "delayed":
        return Found(
            id, kind, record, due_ms=int(float(at or 0)), partition=partition.number, progress=progress
        )
    if kind in ("completed", "failed", "cancelled"):
        place = PLACES[kind] + at
        return Found(
            id,
            kind,
            *unseal(record),
            finished_ms=_ms_of(at),
            partition=partition.number,
            place=place,
            progress=progress,
        )
    entry_ms = _ms_of(at) if at else 0
    return Found(
        id,
        kind,
        record,
        worker=worker.decode() or None,
        partition=partition.number,
        entry_ms=entry_ms,
        progress=progress,
    )


async def count(partition: Partition) -> Counts:
    reply = await partition.server.script("count", partition.base)
    waiting, active, delayed, completed, failed, cancelled, in_lanes, entries, oldest, flat = reply
    totals = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
    oldest_ms = _ms_of(oldest) if oldest else None
    return Counts(
        waiting, active, delayed, completed, failed, cancelled, in_lanes, entries, oldest_ms, totals
    )


async def page(partitions: Sequence[Partition], state: State, start: int, end: int) -> list[Found]:
    """Jobs of one state, from `start` up to `end`: finished ones newest first, others in the order they will run."""
    found: list[Found] = []
    for partition in partitions:
        found += await _of_state(partition, state, end)
    if state in ("completed", "failed", "cancelled"):
        found.sort(key=lambda job: -(job.finished_ms or 0))
    elif state == "delayed":
        found.sort(key=lambda job: job.due_ms or 0)
    return await with_progress(partitions, found[start:end])


async def with_progress(partitions: Sequence[Partition], found: Sequence[Found]) -> list[Found]:
    """The same jobs, with how far they say that they are."""
    said: dict[tuple[int, str], float | None] = {}
    for partition in partitions:
        ids = [job.id for job in found if job.partition == partition.number]
        if ids:
            values = await partition.server.script("progress", partition.base, *ids)
            said |= zip(((partition.number, id) for id in ids), map(read_progress, values), strict=False)
    if not any(value is not None for value in said.values()):
        return list(found)
    return [replace(job, progress=said.get((job.partition, job.id))) for job in found]


async def _of_state(partition: Partition, state: State, most: int) -> list[Found]:
    match state:
        case "completed" | "failed" | "cancelled":
            return await _finished(partition, state, most)
        case "delayed":
            return await _delayed(partition, most)
        case "active":
            return await _active(partition, most)
        case "waiting":
            jobs = await _ready(partition, most)
            return jobs + await _in_lanes(partition, most - len(jobs))


async def _finished(partition: Partition, state: State, most: int) -> list[Found]:
    """The newest first. An entry may hold several, some of them removed since."""
    if most <= 0:
        return []
    rows = await partition.server.call("XREVRANGE", partition.base + state, "+", "-", "COUNT", most)
    jobs = [(entry, f[at : at + 2]) for entry, f in rows for at in range(len(f) - 2, -1, -2)][: most * 2]
    if not jobs:
        return []
    letter = PLACES[state]
    places = await partition.server.call("HMGET", partition.base + "index", *(f[0] for _, f in jobs))
    return [
        Found(
            f[0].decode("utf-8", "replace"),
            state,
            *unseal(f[1]),
            finished_ms=_ms_of(entry),
            partition=partition.number,
        )
        for (entry, f), place in zip(jobs, places, strict=True)
        if place == letter + entry
    ][:most]


async def _delayed(partition: Partition, most: int) -> list[Found]:
    rows = await partition.server.call("ZRANGE", partition.base + "delayed", 0, most - 1, "WITHSCORES")
    ids, dues = rows[::2], rows[1::2]
    if not ids:
        return []
    records = await partition.records(ids)
    return [
        Found(id.decode(), "delayed", record, due_ms=int(float(due)), partition=partition.number)
        for id, due, record in zip(ids, dues, records, strict=True)
        if record
    ]


async def _active(partition: Partition, most: int) -> list[Found]:
    found: list[Found] = []
    for band in await partition.bands():
        stream = ready(partition.base, band)
        try:
            pending = await partition.server.call("XPENDING", stream, GROUP, "-", "+", most)
        except ErrorReply:
            continue
        for entry, worker, *_ in pending[: most - len(found)]:
            rows = await partition.server.call("XRANGE", stream, entry, entry)
            for id, record in (await _jobs_in(partition, rows))[:1]:
                found.append(
                    Found(
                        id.decode("utf-8", "replace"),
                        "active",
                        record,
                        worker=worker.decode(),
                        partition=partition.number,
                    )
                )
    return found


async def _jobs_in(partition: Partition, rows: list[tuple[bytes, list[bytes]]]) -> list[tuple[bytes, bytes]]:
    """The jobs of some ready entries: id and record. Of a train, those that are not settled."""
    jobs: list[tuple[bytes, bytes]] = []
    for _, fields in rows:
        id, record = fields[0], fields[1]
        if id == TRAIN_MARK:
            ids = record[LANE:].split(b"\n")
            records = await partition.records(ids)
            jobs += [pair for pair in zip(ids, records, strict=True) if pair[1]]
        else:
            jobs.append((id, record))
    return jobs


async def _ready(partition: Partition, most: int) -> list[Found]:
    found: list[Found] = []
    for band in await partition.bands():
        if len(found) >= most:
            break
        stream = ready(partition.base, band)
        after = await _last_delivered(partition, stream)
        rows = await partition.server.call("XRANGE", stream, after, "+", "COUNT", most - len(found))
        for entry, fields in rows:
            found += [
                Found(
                    id.decode("utf-8", "replace"),
                    "waiting",
                    record,
                    partition=partition.number,
                    entry_ms=_ms_of(entry),
                )
                for id, record in await _jobs_in(partition, [(entry, fields)])
            ]
    return found[:most]


async def _last_delivered(partition: Partition, stream: str) -> bytes:
    try:
        groups = await partition.server.call("XINFO", "GROUPS", stream)
    except ErrorReply:
        return b"-"
    rows = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
    return b"(" + rows[0][b"last-delivered-id"] if rows else b"-"


async def _in_lanes(partition: Partition, most: int) -> list[Found]:
    """Jobs behind others of their key. Lanes have no common order, so a bounded look through them must do."""
    found: list[Found] = []
    cursor = b"0"
    for _ in range(10):
        if len(found) >= most:
            break
        cursor, flat = await partition.server.call("HSCAN", partition.base + "lanes", cursor, "COUNT", 100)
        for lane in flat[::2]:
            if len(found) >= most:
                break
            name = f"{partition.base}lane:".encode() + lane
            ids = await partition.server.call("LRANGE", name, 0, most - len(found) - 1)
            found += [
                Found(id.decode(), "waiting", record, partition=partition.number)
                for id, record in zip(ids, await partition.records(ids), strict=True)
                if record
            ]
        if cursor == b"0":
            break
    return found[: max(most, 0)]


def _ms_of(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])


# What `qbull doctor` asks of the server itself.


async def server_time(server: Server) -> float:
    seconds, microseconds = await server.call("TIME")
    return int(seconds) + int(microseconds) / 1e6 + moved.shift_ms / 1000


async def try_script(store: Store) -> None:
    """Run a script that looks at a partition which does not exist."""
    await store.server.script("count", store.names.partition("-", 0))


async def silent_workers(store: Store) -> list[str]:
    """Workers that said nothing for their whole time, and whose deliveries nobody has taken back yet."""
    return await store.beat(0, [])
