"""A partition that accepts no more jobs, because the number of partitions has changed."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.core.layout import Generation
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


def successor_in(mark: bytes) -> Generation:
    """The generation that has the keys of a partition that was closed with this mark."""
    _, generation, partitions = mark.split()
    return Generation(int(generation), int(partitions))
