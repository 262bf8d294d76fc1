"""Roam: the unfinished jobs of a partition, read a bounded number at a time, in no order.

For looking through very many of them, and for doing something with all that match. What is there from the
beginning to the end is met; what comes or goes meanwhile may be. A cursor is where to go on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from qbull.core.record import State
from qbull.store.read.inspect import StoredJob
from qbull.store.verbs.partition import Partition

MIN_SCAN_BATCH_SIZE, MAX_SCAN_BATCH_SIZE = 50, 500
SCAN_BATCH_TARGET_BYTES = 1 << 20
"""What a call should bring: the next one asks for more or less, as the records are small or large."""
SCAN_START, SCAN_END = "0", ""


class ScanBatch(NamedTuple):
    """Jobs, how many were looked at to find them, and where to go on: END where that was all."""

    jobs: list[StoredJob]
    looked: int
    cursor: str


async def scan_unfinished(
    partition: Partition, state: State, cursor: str = SCAN_START
) -> AsyncGenerator[ScanBatch, None]:
    step = MIN_SCAN_BATCH_SIZE
    while True:
        after, looked, *flat = await partition.server.script(
            "unfinished", partition.base, cursor, step, state
        )
        cursor = after.decode()
        jobs = [_scanned_job(partition, state, *flat[at : at + 5]) for at in range(0, len(flat), 5)]
        yield ScanBatch(jobs, looked, SCAN_END if cursor == SCAN_START else cursor)
        if cursor == SCAN_START:
            return
        bytes_ = sum(len(part) for part in flat)
        step = max(10, min(step * 2, MAX_SCAN_BATCH_SIZE, step * SCAN_BATCH_TARGET_BYTES // max(bytes_, 1)))


def _scanned_job(
    partition: Partition, state: State, id: bytes, record: bytes, at: bytes, worker: bytes, kind: bytes
) -> StoredJob:
    due = int(float(at or 0)) if state == "delayed" else None
    return StoredJob(
        id.decode("utf-8", "replace"),
        state,
        record,
        due_ms=due,
        worker=worker.decode() or None,
        partition=partition.number,
        entry_ms=int(at.partition(b"-")[0]) if at and due is None else 0,
        position=kind + (at if kind[:1] == b"r" else record),
    )
