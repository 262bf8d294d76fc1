"""Pages: the jobs of a queue in one state, over all its partitions. No call reads more than a few times the
jobs that it shows.

Finished jobs are listed with the newest first, delayed ones by their due time, and others in the order in
which they will run in their partition, one partition after the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from qbull.core.parking import PARKED_DUE_MS, UNPARKED_LEVEL
from qbull.core.progress import Progress, read_progress
from qbull.core.record import State
from qbull.store.connection import fan_out
from qbull.store.connection.server import ErrorReply
from qbull.store.delivery import LANE_DIGEST_BYTES, TRAIN_MARK
from qbull.store.names import CONSUMER_GROUP, DEFAULT_LEVEL, ready_stream
from qbull.store.read.finished import TimeSpan, merged
from qbull.store.read.inspect import StoredJob, counts, ms_of, server_time
from qbull.store.verbs.partition import Partition

PAGE_BATCH_JOBS = 50
"""Jobs that are read in one call, so that a page of large jobs can stop after some of them."""


class ReadBudget:
    """The bytes that the jobs of an answer may have.

    Attributes:
        is_spent: Jobs were left out.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.is_spent = False

    def take(self, job: StoredJob) -> bool:
        """Whether there is room for another job. The first one always has room."""
        if self._left <= 0:
            self.is_spent = True
            return False
        self._left -= job.size
        return True

    def spend(self, job: StoredJob) -> None:
        """Count a job that is shown in any case."""
        self._left -= job.size
        self.is_spent = self._left <= 0


async def page(
    partitions: Sequence[Partition], state: State, start: int, end: int, budget: ReadBudget | None = None
) -> list[StoredJob]:
    """Jobs of one state, from `start` up to `end`; fewer if the budget is spent before."""
    match state:
        case "completed" | "failed" | "cancelled":
            found = _finished(partitions, state)
        case "delayed":
            found = _soonest(partitions, start, end)
            start, end = 0, end - start
        case "waiting" | "active":
            found = _in_turn(partitions, state, end)
    kept: list[StoredJob] = []
    position = 0
    if end > start:
        async with aclosing(found) as jobs:
            async for job in jobs:
                if position >= start:
                    if budget is not None and not budget.take(job):
                        break
                    kept.append(job)
                position += 1
                if position >= end:
                    break
    else:
        await found.aclose()
    return await with_progress(partitions, kept)


async def _finished(partitions: Sequence[Partition], state: State) -> AsyncGenerator[StoredJob, None]:
    async with aclosing(merged(partitions, state, TimeSpan())) as jobs:
        async for _, job in jobs:
            yield job


async def _soonest(partitions: Sequence[Partition], start: int, end: int) -> AsyncGenerator[StoredJob, None]:
    """The first jobs are in as many partitions at most: those whose first job is due soonest."""
    asked = [("ZRANGE", partition.base + "delayed", 0, 0, "WITHSCORES") for partition in partitions]
    rows = await fan_out.run_commands(partitions[0].server, asked) if asked else []
    heads = sorted((float(row[1]), at) for at, row in enumerate(rows) if row)[:end]
    found = [(due, at, id) for _, at in heads for id, due in await _due_ids(partitions[at], end)]
    wanted = sorted(found)[start:end]
    for begin in range(0, len(wanted), PAGE_BATCH_JOBS):
        batch = wanted[begin : begin + PAGE_BATCH_JOBS]
        records: dict[tuple[int, bytes], bytes | None] = {}
        for at in dict.fromkeys(at for _, at, _ in batch):
            ids = [id for _, there, id in batch if there == at]
            records |= zip([(at, id) for id in ids], await partitions[at].records(ids), strict=True)
        for due, at, id in batch:
            record = records[at, id]
            if record:
                yield StoredJob(
                    id.decode(), "delayed", record, due_ms=int(due), partition=partitions[at].number
                )


async def _due_ids(partition: Partition, limit: int) -> list[tuple[bytes, float]]:
    name = partition.base + "delayed"
    found: list[tuple[bytes, float]] = []
    # Parked jobs are between those that have a due time and those that wait for a signal or a called job.
    for first, last in (("-inf", f"({PARKED_DUE_MS}"), (f"({PARKED_DUE_MS}", "+inf")):
        rows = await partition.server.call(
            "ZRANGE", name, first, last, "BYSCORE", "LIMIT", 0, limit - len(found), "WITHSCORES"
        )
        found += [(id, float(due)) for id, due in zip(rows[::2], rows[1::2], strict=True)]
    return found


async def _in_turn(
    partitions: Sequence[Partition], state: State, limit: int
) -> AsyncGenerator[StoredJob, None]:
    for partition, there in zip(partitions, await counts(partitions), strict=True):
        if not getattr(there, state):
            continue
        readers = [active_jobs] if state == "active" else [_ready, _in_lanes, _parked]
        for reader in readers:
            async with aclosing(reader(partition, limit)) as jobs:
                async for job in jobs:
                    yield job


async def with_progress(partitions: Sequence[Partition], found: Sequence[StoredJob]) -> list[StoredJob]:
    """The same jobs, with their reported progress."""
    said: dict[tuple[int, str], Progress | None] = {}
    asked: dict[int, list[str]] = {}
    for job in found:
        asked.setdefault(job.partition, []).append(job.id)
    some = [partition for partition in partitions if partition.number in asked]
    calls = [(partition.base, *asked[partition.number]) for partition in some]
    replies = await fan_out.run_scripts(some[0].server, "progress_read", calls) if some else []
    for partition, values in zip(some, replies, strict=True):
        number = partition.number
        said |= zip(((number, id) for id in asked[number]), map(read_progress, values), strict=False)
    if not any(value is not None for value in said.values()):
        return list(found)
    return [replace(job, progress=said.get((job.partition, job.id))) for job in found]


async def _with_records(
    partition: Partition, state: State, ids: Sequence[bytes]
) -> AsyncGenerator[StoredJob, None]:
    """The jobs with these ids, as far as they are there."""
    for at in range(0, len(ids), PAGE_BATCH_JOBS):
        batch = ids[at : at + PAGE_BATCH_JOBS]
        for id, record in zip(batch, await partition.records(batch), strict=True):
            if record:
                yield StoredJob(id.decode(), state, record, partition=partition.number)


async def _parked(partition: Partition, limit: int) -> AsyncGenerator[StoredJob, None]:
    """Jobs that wait for a worker whose code can run them."""
    name = partition.base + "delayed"
    ids = await partition.server.call(
        "ZRANGE", name, PARKED_DUE_MS, PARKED_DUE_MS, "BYSCORE", "LIMIT", 0, limit
    )
    async for job in _with_records(partition, "waiting", ids):
        yield job


async def active_jobs(partition: Partition, limit: int) -> AsyncGenerator[StoredJob, None]:
    """The jobs that workers have."""
    now_ms = int(await server_time(partition) * 1000)
    for level in (*await partition.priority_levels(), UNPARKED_LEVEL):
        stream = ready_stream(partition.base, level)
        try:
            pending = await partition.server.call("XPENDING", stream, CONSUMER_GROUP, "-", "+", limit)
        except ErrorReply:
            continue
        for at in range(0, len(pending), PAGE_BATCH_JOBS):
            some = pending[at : at + PAGE_BATCH_JOBS]
            asked = [("XRANGE", stream, entry, entry) for entry, *_ in some]
            entries = await fan_out.run_commands(partition.server, asked)
            for (entry, worker, idle_ms, _), rows in zip(some, entries, strict=True):
                for id, record in (await _jobs_in(partition, rows))[:1]:
                    yield StoredJob(
                        id.decode("utf-8", "replace"),
                        "active",
                        record,
                        worker=worker.decode(),
                        partition=partition.number,
                        entry_ms=ms_of(entry),
                        started_ms=now_ms - idle_ms,
                    )


async def _jobs_in(partition: Partition, rows: list[tuple[bytes, list[bytes]]]) -> list[tuple[bytes, bytes]]:
    """The jobs of some ready entries: id and record. Of a train, only the unsettled ones."""
    jobs: list[tuple[bytes, bytes]] = []
    for _, fields in rows:
        id, record = fields[0], fields[1]
        if id == TRAIN_MARK:
            ids = record[LANE_DIGEST_BYTES:].split(b"\n")
            records = await partition.records(ids)
            jobs += [pair for pair in zip(ids, records, strict=True) if pair[1]]
        else:
            jobs.append((id, record))
    return jobs


async def _ready(partition: Partition, limit: int) -> AsyncGenerator[StoredJob, None]:
    for level in await partition.priority_levels():
        stream = ready_stream(partition.base, level)
        after = await _last_delivered(partition, stream)
        while True:
            count = min(limit, PAGE_BATCH_JOBS)
            rows = await partition.server.call("XRANGE", stream, after, "+", "COUNT", count)
            for entry, fields in rows:
                for id, record in await _jobs_in(partition, [(entry, fields)]):
                    yield StoredJob(
                        id.decode("utf-8", "replace"),
                        "waiting",
                        record,
                        partition=partition.number,
                        entry_ms=ms_of(entry),
                    )
            if len(rows) < count:
                break
            after = b"(" + rows[-1][0]


async def _last_delivered(partition: Partition, stream: str) -> bytes:
    try:
        groups = await partition.server.call("XINFO", "GROUPS", stream)
    except ErrorReply:
        return b"-"
    rows = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
    return b"(" + rows[0][b"last-delivered-id"] if rows else b"-"


async def _in_lanes(partition: Partition, limit: int) -> AsyncGenerator[StoredJob, None]:
    """Jobs behind others of their key. Lanes have no common order, so this reads a bounded number of them."""
    cursor, found = b"0", 0
    for _ in range(10):
        cursor, flat = await partition.server.call("HSCAN", partition.base + "lanes", cursor, "COUNT", 100)
        for lane in flat[::2]:
            if found >= limit:
                return
            ids = await _waiting_in_lane(partition, lane, limit - found)
            found += len(ids)
            async for job in _with_records(partition, "waiting", ids):
                yield job
        if cursor == b"0":
            break


async def _waiting_in_lane(partition: Partition, lane: bytes, limit: int) -> list[bytes]:
    """The first jobs that wait in a lane, the most urgent ones first (lua/lib/lane_lists.lua)."""
    name = f"{partition.base}lane:".encode() + lane
    levels = (await partition.server.call("HGET", partition.base + "ranked", lane) or b"").decode()
    found: list[bytes] = []
    for level in sorted(f"5{levels}"):
        if len(found) < limit:
            of_level = name if level == DEFAULT_LEVEL else name + f":{level}".encode()
            found += await partition.server.call("LRANGE", of_level, 0, limit - len(found) - 1)
    return found
