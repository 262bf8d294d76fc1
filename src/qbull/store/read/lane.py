"""Lane: the line behind one key. Who holds it, who waits in it, and where in it a job is."""

from __future__ import annotations

from dataclasses import dataclass

from qbull.core.record import State
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

MAX_HOLDER_SCAN_ENTRIES = 50
"""Entries of each stream that are looked through for who holds a lane.

Of a lane with a train it is known without a look.
"""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """`holder` is the job that the others wait for; None where nobody does, or it was not found in a bounded
    look.

    `waiting` are how many are behind it, `first` the first of them, in order. `position` is that of the job
    asked about: how many come before it, itself included.
    """

    waiting: int
    first: list[str]
    holder: str | None
    holder_state: State | None
    worker: str | None
    position: int = 0

    @property
    def halted(self) -> bool:
        """It stands still until somebody deals with the dead letter that holds it."""
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
    """How many deliveries are before one that is ready, at `<band><entry>`.

    One more than `most` stands for more.
    """
    count: int = await partition.server.script(
        "jobs_ahead", partition.base, position[:1], position[1:], limit
    )
    return count
