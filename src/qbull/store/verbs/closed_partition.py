"""A partition that accepts no more jobs: the number of partitions has changed, or its jobs have moved."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.core.layout import Generation
from qbull.errors import ServerAway, ServerRefused
from qbull.store.verbs.unique import UniqueAnswer


class PartitionClosed(Exception):
    """The partition accepts no more jobs. It has those in `known` already; the others go to `successor`.

    For unique jobs, `unique_answers` has the answer for each.
    """

    def __init__(
        self, known: set[int], successor: Generation, unique_answers: Sequence[UniqueAnswer] = ()
    ) -> None:
        super().__init__(f"closed; its keys are in generation {successor.number} now")
        self.known = known
        self.successor = successor
        self.unique_answers = unique_answers


MOVED_MARK = "closed moved "
"""The mark of a partition whose jobs are at another server. The copy and the address follow."""
LEAVING_MARK = b"closed leaving "
"""The mark of a partition whose last changes are copied to another server; its mark before that follows."""
ARRIVING_MARK = b"closed arriving"
"""The mark of a partition to which the jobs of another server are being copied."""


def successor_in(mark: bytes) -> Generation:
    """The generation that has the keys of a partition that was closed with this mark.

    Raises ServerError if another server has them, or is about to send them.
    """
    if mark == ARRIVING_MARK:
        raise ServerAway('the queue is being moved to this server; try again when "qbull move" has ended')
    if mark.startswith(LEAVING_MARK):
        raise ServerAway("the queue is being moved to another server; try again in a moment")
    if mark.startswith(MOVED_MARK.encode()):
        address = mark.decode("utf-8", "replace").removeprefix(MOVED_MARK).partition(" ")[2]
        raise ServerRefused(f"the queue was moved to {address}. Set QBULL_URL to that address.")
    _, generation, partitions = mark.split()
    return Generation(int(generation), int(partitions))
