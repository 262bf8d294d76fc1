"""Pages: the jobs of a queue in one state, over all its partitions. No call reads more than a few times the
jobs that it shows.

Finished jobs are listed with the newest first, delayed ones by their due time, and others in the order in
which they will run in their partition, one partition after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from qbull.core.parking import PARKED_DUE_MS, UNPARKED_LEVEL
from qbull.core.record import State
from qbull.store.connection import fan_out
from qbull.store.connection.server import ErrorReply
from qbull.store.delivery import LANE_DIGEST_BYTES, TRAIN_MARK
from qbull.store.names import CONSUMER_GROUP, ready_stream
from qbull.store.read.finished import TimeSpan, merged
from qbull.store.read.inspect import StoredJob, counts, ms_of
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.progress import read_progress


async def page(partitions: Sequence[Partition], state: State, start: int, end: int) -> list[StoredJob]:
    """Jobs of one state, from `start` up to `end`."""
    match state:
        case "completed" | "failed" | "cancelled":
            found = await _finished(partitions, state, end)
        case "delayed":
            found = await _soonest(partitions, end)
        case "waiting" | "active":
            found = await _in_turn(partitions, state, end)
    return await with_progress(partitions, found[start:end])


async def _finished(partitions: Sequence[Partition], state: State, limit: int) -> list[StoredJob]:
    found: list[StoredJob] = []
    if limit:
        async with aclosing(merged(partitions, state, TimeSpan())) as jobs:
            async for _, job in jobs:
                found.append(job)
                if len(found) >= limit:
                    break
    return found


async def _soonest(partitions: Sequence[Partition], limit: int) -> list[StoredJob]:
    """The first `limit` jobs are in at most `limit` partitions: those whose first job is due soonest."""
    asked = [("ZRANGE", partition.base + "delayed", 0, 0, "WITHSCORES") for partition in partitions]
    rows = await fan_out.run_commands(partitions[0].server, asked) if asked else []
    heads = sorted((float(row[1]), at) for at, row in enumerate(rows) if row)
    found = [job for _, at in heads[:limit] for job in await _delayed(partitions[at], limit)]
    return sorted(found, key=lambda job: job.due_ms or 0)


async def _in_turn(partitions: Sequence[Partition], state: State, limit: int) -> list[StoredJob]:
    found: list[StoredJob] = []
    for partition, there in zip(partitions, await counts(partitions), strict=True):
        if len(found) >= limit:
            break
        if getattr(there, state):
            found += await _of_state(partition, state, limit - len(found))
    return found


async def _of_state(partition: Partition, state: State, limit: int) -> list[StoredJob]:
    if state == "active":
        return await _active(partition, limit)
    jobs = await _ready(partition, limit)
    jobs += await _in_lanes(partition, limit - len(jobs))
    return jobs + (await _parked(partition, limit - len(jobs)) if len(jobs) < limit else [])


async def with_progress(partitions: Sequence[Partition], found: Sequence[StoredJob]) -> list[StoredJob]:
    """The same jobs, with their reported progress."""
    said: dict[tuple[int, str], float | None] = {}
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


async def _delayed(partition: Partition, limit: int) -> list[StoredJob]:
    name = partition.base + "delayed"
    rows = await partition.server.call(
        "ZRANGE", name, "-inf", f"({PARKED_DUE_MS}", "BYSCORE", "LIMIT", 0, limit, "WITHSCORES"
    )
    ids, dues = rows[::2], rows[1::2]
    if not ids:
        return []
    records = await partition.records(ids)
    return [
        StoredJob(id.decode(), "delayed", record, due_ms=int(float(due)), partition=partition.number)
        for id, due, record in zip(ids, dues, records, strict=True)
        if record
    ]


async def _parked(partition: Partition, limit: int) -> list[StoredJob]:
    """Jobs that wait for a worker whose code can run them."""
    name = partition.base + "delayed"
    ids = await partition.server.call("ZRANGE", name, PARKED_DUE_MS, "+inf", "BYSCORE", "LIMIT", 0, limit)
    records = await partition.records(ids) if ids else []
    return [
        StoredJob(id.decode(), "waiting", record, partition=partition.number)
        for id, record in zip(ids, records, strict=True)
        if record
    ]


async def _active(partition: Partition, limit: int) -> list[StoredJob]:
    found: list[StoredJob] = []
    for level in (*await partition.priority_levels(), UNPARKED_LEVEL):
        stream = ready_stream(partition.base, level)
        try:
            pending = await partition.server.call("XPENDING", stream, CONSUMER_GROUP, "-", "+", limit)
        except ErrorReply:
            continue
        some = pending[: limit - len(found)]
        asked = [("XRANGE", stream, entry, entry) for entry, *_ in some]
        entries = await fan_out.run_commands(partition.server, asked)
        for (_, worker, *_), rows in zip(some, entries, strict=True):
            for id, record in (await _jobs_in(partition, rows))[:1]:
                found.append(
                    StoredJob(
                        id.decode("utf-8", "replace"),
                        "active",
                        record,
                        worker=worker.decode(),
                        partition=partition.number,
                    )
                )
    return found


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


async def _ready(partition: Partition, limit: int) -> list[StoredJob]:
    found: list[StoredJob] = []
    for level in await partition.priority_levels():
        if len(found) >= limit:
            break
        stream = ready_stream(partition.base, level)
        after = await _last_delivered(partition, stream)
        rows = await partition.server.call("XRANGE", stream, after, "+", "COUNT", limit - len(found))
        for entry, fields in rows:
            found += [
                StoredJob(
                    id.decode("utf-8", "replace"),
                    "waiting",
                    record,
                    partition=partition.number,
                    entry_ms=ms_of(entry),
                )
                for id, record in await _jobs_in(partition, [(entry, fields)])
            ]
    return found[:limit]


async def _last_delivered(partition: Partition, stream: str) -> bytes:
    try:
        groups = await partition.server.call("XINFO", "GROUPS", stream)
    except ErrorReply:
        return b"-"
    rows = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
    return b"(" + rows[0][b"last-delivered-id"] if rows else b"-"


async def _in_lanes(partition: Partition, limit: int) -> list[StoredJob]:
    """Jobs behind others of their key. Lanes have no common order, so this reads a bounded number of them."""
    found: list[StoredJob] = []
    cursor = b"0"
    for _ in range(10):
        if len(found) >= limit:
            break
        cursor, flat = await partition.server.call("HSCAN", partition.base + "lanes", cursor, "COUNT", 100)
        for lane in flat[::2]:
            if len(found) >= limit:
                break
            name = f"{partition.base}lane:".encode() + lane
            ids = await partition.server.call("LRANGE", name, 0, limit - len(found) - 1)
            found += [
                StoredJob(id.decode(), "waiting", record, partition=partition.number)
                for id, record in zip(ids, await partition.records(ids), strict=True)
                if record
            ]
        if cursor == b"0":
            break
    return found[: max(limit, 0)]
