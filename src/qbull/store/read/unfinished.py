"""Unfinished jobs of a partition, read in bounded steps, in no order.

For searching very many of them, or for processing all that match. A job that is there from the first step to
the last is read; one that comes or goes meanwhile may be. The cursor tells where to continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Literal, NamedTuple

from qbull.core.record import State
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs.partition import Partition

MIN_SCAN_BATCH_SIZE, MAX_SCAN_BATCH_SIZE = 50, 500
SCAN_BATCH_TARGET_BYTES = 1 << 20
"""Target size of a reply. The next call asks for more or fewer jobs, depending on the records' size."""
SCAN_START, SCAN_END = "0", ""


class ScanBatch(NamedTuple):
    """Jobs, the number of jobs that were examined to find them, and the cursor: SCAN_END after the last."""

    jobs: list[StoredJob]
    looked: int
    cursor: str


class _ScannedRow(NamedTuple):
    """A job as lua/unfinished.lua gives it. `at` is its due time or entry, `since_ms` the time of
    its delivery, `kind` the start of its place.
    """

    id: bytes
    record: bytes
    at: bytes
    worker: bytes
    since_ms: int
    kind: bytes
    state: bytes


async def scan_unfinished(
    partition: Partition, state: State | Literal["queued"], cursor: str = SCAN_START, *, ahead: bool = False
) -> AsyncGenerator[ScanBatch, None]:
    """The jobs of a state; "queued" stands for waiting and delayed.

    `ahead`: the server reads the next jobs while the caller looks at these.
    """
    step = MIN_SCAN_BATCH_SIZE
    reading = asyncio.create_task(_read(partition, state, cursor, step))
    try:
        while True:
            after, looked, *flat = await reading
            cursor = after.decode()
            rows = [_ScannedRow(*flat[at : at + 7]) for at in range(0, len(flat), 7)]
            bytes_ = sum(len(row.record) for row in rows)
            step = max(
                10, min(step * 2, MAX_SCAN_BATCH_SIZE, step * SCAN_BATCH_TARGET_BYTES // max(bytes_, 1))
            )
            is_last = cursor == SCAN_START
            if ahead and not is_last:
                reading = asyncio.create_task(_read(partition, state, cursor, step))
                await asyncio.sleep(0)  # The call leaves before the caller starts to look.
            jobs = [_scanned_job(partition, row) for row in rows]
            yield ScanBatch(jobs, looked, SCAN_END if is_last else cursor)
            if is_last:
                return
            if not ahead:
                reading = asyncio.create_task(_read(partition, state, cursor, step))
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _read(partition: Partition, state: str, cursor: str, step: int) -> list[Any]:
    return list(await partition.server.script("unfinished", partition.base, cursor, step, state))


def _scanned_job(partition: Partition, row: _ScannedRow) -> StoredJob:
    state: State = row.state.decode()  # type: ignore[assignment]
    due = int(float(row.at or 0)) if state == "delayed" else None
    return StoredJob(
        row.id.decode("utf-8", "replace"),
        state,
        row.record,
        due_ms=due,
        worker=row.worker.decode() or None,
        started_ms=row.since_ms or None,
        partition=partition.number,
        entry_ms=int(row.at.partition(b"-")[0]) if row.at and due is None else 0,
        position=row.kind + (row.at if row.kind[:1] == b"r" else row.record),
    )
