"""News: which jobs have finished since the last look. Read from where finished jobs lie, so nothing is
written for it by anybody.

Whoever keeps no completed jobs hears of none. One that was removed or redriven meanwhile may still be told
of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qbull.core.record import State, split_ending, task_in
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

FINISHED_SINCE_BATCH_SIZE = 8
"""Entries of each stream in one look, of up to 16 jobs each."""
FINISHED_SINCE_LIMIT_BYTES = 1 << 18
FAR_FUTURE_MS = 1 << 52
"""A moment that does not come."""
FINISHED_STATES: tuple[State, ...] = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """`task` is empty where its name is too long to be told."""

    id: str
    state: State
    task: str
    error: str | None
    at_ms: int


@dataclass(slots=True)
class FinishedCursor:
    """How far a partition was looked at: the last entry of each stream."""

    after: dict[State, str] = field(default_factory=dict)

    @classmethod
    def since(cls, ms: int) -> FinishedCursor:
        """From a moment on: what finished in that millisecond is told once more."""
        return cls(dict.fromkeys(FINISHED_STATES, f"{max(ms - 1, 0)}-18446744073709551615"))


@dataclass(frozen=True, slots=True)
class FinishedSince:
    """`cut` says that more have finished than were told of.

    `reached_ms` that what came before has been, where the oldest were asked for.
    """

    now_ms: int
    finished: list[FinishedJob]
    cut: bool
    reached_ms: int


async def finished_since(
    partitions: Sequence[tuple[Partition, FinishedCursor]], *, oldest_first: bool = False
) -> list[FinishedSince]:
    """What is new in each, the newest of it, or the oldest where the rest is asked for too.

    The cursors are moved behind it.
    """
    if not partitions:
        return []
    calls: list[tuple[str | int, ...]] = [
        (
            partition.base,
            FINISHED_SINCE_BATCH_SIZE,
            FINISHED_SINCE_LIMIT_BYTES,
            int(oldest_first),
            *(cursor.after[state] for state in FINISHED_STATES),
        )
        for partition, cursor in partitions
    ]
    replies = await _send([partition for partition, _ in partitions], calls)
    return [_read(cursor, reply) for (_, cursor), reply in zip(partitions, replies, strict=True)]


@idempotent
async def _send(partitions: Sequence[Partition], calls: Sequence[tuple[str | int, ...]]) -> list[Any]:
    return await run_scripts(partitions[0].server, "finished_since", calls)


async def server_times(partitions: Sequence[Partition]) -> list[int]:
    """What the clock of each partition's server says."""
    return [
        one.now_ms
        for one in await finished_since(
            [(partition, FinishedCursor.since(FAR_FUTURE_MS)) for partition in partitions]
        )
    ]


def _read(cursor: FinishedCursor, reply: list[Any]) -> FinishedSince:
    now_ms, cut, *flat = reply
    found = []
    for at in range(0, len(flat), 5):
        state, entry, id, head, ending = flat[at : at + 5]
        kind: State = state.decode()
        cursor.after[kind] = entry.decode()
        error = split_ending(ending)[1].error if ending else None
        at_ms = int(entry.partition(b"-")[0])
        found.append(FinishedJob(id.decode("utf-8", "replace"), kind, task_in(head), error, at_ms))
    left = [state for n, state in enumerate(FINISHED_STATES) if cut >> n & 1]
    reached = min([now_ms, *(int(cursor.after[state].partition("-")[0]) for state in left)])
    return FinishedSince(now_ms, sorted(found, key=lambda one: one.at_ms), bool(cut), reached)
