"""Roam: the unfinished jobs of a partition, read a bounded number at a time, in no order.

For looking through very many of them, and for doing something with all that match. What is there from the beginning to the
end is met; what comes or goes meanwhile may be. A cursor is where to go on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from qbull.core.record import State
from qbull.store.read.inspect import Found
from qbull.store.verbs.partition import Partition

FIRST_STEP, LONGEST_STEP = 50, 500
STEP_BYTES = 1 << 20
"""What a call should bring: the next one asks for more or less, as the records are small or large."""
BEGIN, END = "0", ""


class Met(NamedTuple):
    """Jobs, how many were looked at to find them, and where to go on: END where that was all."""

    jobs: list[Found]
    looked: int
    cursor: str


async def roam(partition: Partition, state: State, cursor: str = BEGIN) -> AsyncGenerator[Met, None]:
    step = FIRST_STEP
    while True:
        after, looked, *flat = await partition.server.script("roam", partition.base, cursor, step, state)
        cursor = after.decode()
        jobs = [_found(partition, state, *flat[at : at + 5]) for at in range(0, len(flat), 5)]
        yield Met(jobs, looked, END if cursor == BEGIN else cursor)
        if cursor == BEGIN:
            return
        bytes_ = sum(len(part) for part in flat)
        step = max(10, min(step * 2, LONGEST_STEP, step * STEP_BYTES // max(bytes_, 1)))


def _found(
    partition: Partition, state: State, id: bytes, record: bytes, at: bytes, worker: bytes, kind: bytes
) -> Found:
    due = int(float(at or 0)) if state == "delayed" else None
    return Found(
        id.decode("utf-8", "replace"),
        state,
        record,
        due_ms=due,
        worker=worker.decode() or None,
        partition=partition.number,
        entry_ms=int(at.partition(b"-")[0]) if at and due is None else 0,
        place=kind + (at if kind[:1] == b"r" else record),
    )
