"""Lane: the jobs of one key. Which job holds it, which wait in it, and the position of a job in it."""

from __future__ import annotations

from dataclasses import dataclass

from qbull.core.record import State
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

MAX_HOLDER_SCAN_ENTRIES = 50
"""Entries of each stream that are searched for the holder of a lane.

For a lane with a train no search is needed.
"""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """The state of a lane.

    `holder` is the job that the others wait for; None if there is none, or if the bounded search did not find
    it. `waiting` is the number of jobs behind it, `first` lists the first of them in order. `position` is
    that of the job in question: the number of jobs up to and including it.
    """

    waiting: int
    first: list[str]
    holder: str | None
    holder_state: State | None
    worker: str | None
    position: int = 0

    @property
    def halted(self) -> bool:
        """Whether the lane waits until someone deals with the dead letter that holds it."""
        return self.holder_state == "failed"


@idempotent
async def lane_status(partition: Partition, lane: bytes, limit: int, id: str = "") -> LaneStatus:
    _, in_list, first, aboard, holder, state, worker, position = await partition.server.script(
        "lane_report", partition.base, lane, limit, MAX_HOLDER_SCAN_ENTRIES, id
    )
    behind = [other.decode("utf-8", "replace") for other in (*aboard[1:], *first)][:limit]
    return LaneStatus(
        in_list + max(len(aboard) - 1, 0),
        behind,
        holder.decode("utf-8", "replace") or None,
        state.decode() or None,
        worker.decode() or None,
        position,
    )


async def count_ahead(partition: Partition, position: bytes, limit: int) -> int:
    """The number of deliveries before a ready one, at `<level><entry>`.

    `limit` + 1 means more than `limit`.
    """
    count: int = await partition.server.script(
        "jobs_ahead", partition.base, position[:1], position[1:], limit
    )
    return count
