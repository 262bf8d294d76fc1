"""A queue's layout: how many partitions it has, and which earlier ones still hold jobs.

A change of the number makes a new generation with its own partitions: the keys of a partition never change.
Earlier generations accept no jobs any more. Workers empty them, and they stay readable until nothing is left
in them. The layout is one small value on the server; this module has that value and the rules that follow
from it.

A partition's number is unique in its queue, over all generations: it combines the generation and the index in
it. A queue starts with generation 0, in which the number is the index. People see only the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Literal

import msgspec

from qbull.core.ids import partition_of_id
from qbull.core.route import PARTITION_LANE, partition_of_digest

GENERATION_SPAN_PARTITIONS = 4096
"""How far the numbers of two generations are apart: an id has twelve bits for its partition."""
MAX_PARTITIONS = 1024
"""Maximum number of partitions of a queue. Every read of the queue visits each of them."""
MAX_ALL_PARTITIONS = 4096
"""The same, including those of earlier generations that still hold jobs."""


class Generation(msgspec.Struct, frozen=True):
    """A generation of partitions.

    The `state` of an earlier generation: it has unfinished jobs, only finished ones, or none.
    """

    number: int
    partitions: int
    state: Literal["draining", "drained", "gone"] = "draining"
    totals: dict[str, int] = {}
    """The counters of the generation, after its names were deleted."""

    @property
    def numbers(self) -> range:
        """Its partitions."""
        return range(
            self.number * GENERATION_SPAN_PARTITIONS,
            self.number * GENERATION_SPAN_PARTITIONS + self.partitions,
        )

    def indices_of(self, numbers: Iterable[int]) -> frozenset[int]:
        """The indices in this generation of those of these partitions that belong to it."""
        return frozenset(index_in_generation(number) for number in numbers if number in self.numbers)

    def home(self, digest: bytes) -> int:
        """The partition of a key or an id."""
        return self.number * GENERATION_SPAN_PARTITIONS + partition_of_digest(digest, self.partitions)

    def home_of_id(self, id: str) -> int:
        """The partition of a job without a lane."""
        return self.number * GENERATION_SPAN_PARTITIONS + partition_of_id(id, self.partitions)

    def home_of(self, together: bytes | None, id: str) -> int:
        """The partition of a job: that of its affinity, or else that of its id."""
        return self.home(together) if together is not None else self.home_of_id(id)

    def homes(self, lane: bytes, later: Generation, number: int) -> Sequence[int]:
        """The earlier partitions of the jobs that partition `number` of a later generation has in this lane.

        A key has one partition. But if a whole partition is one lane, its keys may come from several: from
        all whose indices have the same remainder modulo the greatest common divisor of both counts.
        """
        if lane != PARTITION_LANE:
            return [self.home(lane[:8])]  # The bytes after it tell the kind of lane.
        step = gcd(self.partitions, later.partitions)
        return self.numbers[index_in_generation(number) % step :: step]


class Layout(msgspec.Struct, frozen=True):
    """The generation in force, the earlier ones (oldest first), and the next partition count."""

    generation: int = 0
    partitions: int = 1
    older: tuple[Generation, ...] = ()
    coming: int | None = None
    counts: tuple[int, ...] = ()
    """Earlier numbers of partitions. Code that still has one of these follows the server."""
    past: dict[str, int] = {}
    """The counters of generations that were deleted."""

    @property
    def current(self) -> Generation:
        return Generation(self.generation, self.partitions)

    def home(self, digest: bytes) -> int:
        """The partition of a key or an id now."""
        return self.generation * GENERATION_SPAN_PARTITIONS + partition_of_digest(digest, self.partitions)

    def home_of_id(self, id: str) -> int:
        """The partition of a job without a lane: the one in its id, if it has one."""
        return self.generation * GENERATION_SPAN_PARTITIONS + partition_of_id(id, self.partitions)

    def any_home(self, n: int) -> int:
        """The partition of the n-th job that may go to any."""
        return self.generation * GENERATION_SPAN_PARTITIONS + n % self.partitions

    @property
    def generations(self) -> list[Generation]:
        """All partitions that may have jobs, the oldest first.

        Jobs move towards the last, so a reader that follows this order misses none.
        """
        return [*(older for older in self.older if older.state != "gone"), self.current]

    @property
    def busy(self) -> list[Generation]:
        """All partitions that may have unfinished jobs. Workers read these."""
        return [*(older for older in self.older if older.state == "draining"), self.current]

    @property
    def draining(self) -> list[Generation]:
        return self.busy[:-1]

    @property
    def settled(self) -> bool:
        """Whether no change of the number is under way."""
        return self.coming is None and not self.draining

    def in_all(self, counted: dict[str, int]) -> dict[str, int]:
        """The counters of the current and the former partitions."""
        for gone in (self.past, *(older.totals for older in self.older if older.state == "gone")):
            counted = sum_totals(counted, gone)
        return counted

    def generation_with(self, number: int) -> Generation:
        """The generation of a partition."""
        return next(generation for generation in self.generations if number in generation.numbers)

    def before(self, number: int) -> list[Generation]:
        """The generations that come before a partition's own and may have unfinished jobs."""
        return [older for older in self.draining if older.number < generation_of(number)]

    # Changes of a layout. Each is one step on the server, which checks that the old value is still there.

    def begins(self, partitions: int) -> Layout:
        """Propose another number of partitions; nobody uses it yet."""
        return msgspec.structs.replace(self, coming=partitions)

    def switched(self) -> Layout:
        """Put the new partitions in force, because no job can enter the old ones any more."""
        assert self.coming is not None
        counts = tuple(dict.fromkeys((*self.counts, self.partitions)))
        return msgspec.structs.replace(
            self,
            generation=self.generation + 1,
            partitions=self.coming,
            older=(*self.older, self.current),
            coming=None,
            counts=counts,
        )

    def drained(self, generation: int) -> Layout:
        return self._with(generation, "drained")

    def gone(self, generation: int, totals: dict[str, int]) -> Layout:
        return self._with(generation, "gone", totals)

    def forgotten(self, generation: int) -> Layout:
        """Forget a generation whose names are deleted, except for its counters."""
        past = dict(self.past)
        for older in self.older:
            if older.number == generation:
                past = sum_totals(past, older.totals)
        rest = tuple(older for older in self.older if older.number != generation)
        return msgspec.structs.replace(self, older=rest, past=past)

    def _with(self, generation: int, state: str, totals: dict[str, int] | None = None) -> Layout:
        older = tuple(
            msgspec.structs.replace(older, state=state, totals=totals or older.totals)
            if older.number == generation
            else older
            for older in self.older
        )
        return msgspec.structs.replace(self, older=older)


def index_in_generation(number: int) -> int:
    """A partition's index in its generation, which people see."""
    return number % GENERATION_SPAN_PARTITIONS


def generation_of(number: int) -> int:
    return number // GENERATION_SPAN_PARTITIONS


def sum_totals(totals: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: totals.get(name, 0) + more.get(name, 0) for name in {*totals, *more}}
