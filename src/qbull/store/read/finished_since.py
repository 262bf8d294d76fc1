"""News: which jobs have finished since the last look. Read from where finished jobs lie, so nothing is written for it by anybody.

Whoever keeps no completed jobs hears of none. One that was removed or redriven meanwhile may still be told of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qbull.core.record import State, task_in, unseal
from qbull.store.connection.fan_out import scripts
from qbull.store.verbs.partition import Partition

MOST = 8
"""Entries of each stream in one look, of up to 16 jobs each."""
BYTES = 1 << 18
FAR = 1 << 52
"""A moment that does not come."""
STATES: tuple[State, ...] = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Finished:
    """`task` is empty where its name is too long to be told."""

    id: str
    state: State
    task: str
    error: str | None
    at_ms: int


@dataclass(slots=True)
class Cursor:
    """How far a partition was looked at: the last entry of each stream."""

    after: dict[State, str] = field(default_factory=dict)

    @classmethod
    def since(cls, ms: int) -> Cursor:
        """From a moment on: what finished in that millisecond is told once more."""
        return cls(dict.fromkeys(STATES, f"{max(ms - 1, 0)}-18446744073709551615"))


@dataclass(frozen=True, slots=True)
class News:
    """`cut` says that more have finished than were told of; `reached_ms` that what came before has been, where the oldest were asked for."""

    now_ms: int
    finished: list[Finished]
    cut: bool
    reached_ms: int


async def news(partitions: Sequence[tuple[Partition, Cursor]], *, oldest_first: bool = False) -> list[News]:
    """What is new in each, the newest of it, or the oldest where the rest is asked for too; the cursors are moved behind it."""
    if not partitions:
        return []
    calls: list[tuple[str | int, ...]] = [
        (partition.base, MOST, BYTES, int(oldest_first), *(cursor.after[state] for state in STATES))
        for partition, cursor in partitions
    ]
    replies = await scripts(partitions[0][0].server, "news", calls)
    return [_read(cursor, reply) for (_, cursor), reply in zip(partitions, replies, strict=True)]


async def now_in(partitions: Sequence[Partition]) -> list[int]:
    """What the clock of each partition's server says."""
    return [one.now_ms for one in await news([(partition, Cursor.since(FAR)) for partition in partitions])]


def _read(cursor: Cursor, reply: list[Any]) -> News:
    now_ms, cut, *flat = reply
    found = []
    for at in range(0, len(flat), 5):
        state, entry, id, head, ending = flat[at : at + 5]
        kind: State = state.decode()
        cursor.after[kind] = entry.decode()
        error = unseal(ending)[1].error if ending else None
        at_ms = int(entry.partition(b"-")[0])
        found.append(Finished(id.decode("utf-8", "replace"), kind, task_in(head), error, at_ms))
    left = [state for n, state in enumerate(STATES) if cut >> n & 1]
    reached = min([now_ms, *(int(cursor.after[state].partition("-")[0]) for state in left)])
    return News(now_ms, sorted(found, key=lambda one: one.at_ms), bool(cut), reached)
