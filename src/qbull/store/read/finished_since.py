"""Finished since: the jobs that have finished since the last call. Read from the streams of finished jobs, so
nothing has to be written for it.

A queue that keeps no completed jobs reports none. A job that was removed or redriven meanwhile may still be
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from qbull.core.record import State, split_ending, task_in
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

FINISHED_SINCE_BATCH_SIZE = 8
"""Entries of each stream per call, with up to 16 jobs each."""
FINISHED_SINCE_LIMIT_BYTES = 1 << 18
FAR_FUTURE_MS = 1 << 52
"""A time that never comes."""
FINISHED_STATES: tuple[State, ...] = ("completed", "failed", "cancelled")


class FinishedJob(msgspec.Struct, frozen=True):
    """A finished job. `task` is empty if its name is too long to be read."""

    id: str
    state: State
    task: str
    error: str | None
    at_ms: int


class FinishedCursor(msgspec.Struct):
    """The position in a partition: the last entry of each stream that was read."""

    after: dict[State, str] = msgspec.field(default_factory=dict)

    @classmethod
    def since(cls, ms: int) -> FinishedCursor:
        """Start at a time. Jobs that finished in that millisecond are reported once more."""
        return cls(dict.fromkeys(FINISHED_STATES, f"{max(ms - 1, 0)}-18446744073709551615"))


class FinishedSince(msgspec.Struct, frozen=True):
    """The jobs that have finished. `cut` means that more have finished than are listed.

    With `oldest_first`, everything before `reached_ms` is listed.
    """

    now_ms: int
    finished: list[FinishedJob]
    cut: bool
    reached_ms: int


async def finished_since(
    partitions: Sequence[tuple[Partition, FinishedCursor]], *, oldest_first: bool = False
) -> list[FinishedSince]:
    """The newest finished jobs of each partition; with `oldest_first` the oldest, so that none is missed.

    Moves the cursors forward.
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
    """The time on the server of each partition."""
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
