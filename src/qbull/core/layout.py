"""A queue's layout: how many partitions it has, and which earlier ones still have something in them.

A change of the number makes a new generation, with partitions of its own: the keys of a partition never
change. The earlier generations take nothing in any more; they are worked off, and are there for readers until
nothing is left in them. All of that is one small value on the server. This is that value, and what follows
from it.

A partition's number is unique in its queue, over all generations: the generation and the place in it, in one.
A queue begins with generation 0, where the number is the place. People see the place alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Literal

import msgspec

from qbull.core.ids import partition_of_id
from qbull.core.route import PARTITION_LANE, partition_of

GENERATION_SPAN_PARTITIONS = 4096
"""How far the numbers of two generations are apart: an id has twelve bits for its partition."""
MAX_PARTITIONS = 1024
"""Partitions of a queue. Every read of the queue visits each of them."""
MAX_ALL_PARTITIONS = 4096
"""The same with those of earlier generations that still have something in them."""


class Generation(msgspec.Struct, frozen=True):
    """A generation of partitions.

    `state` of an earlier one: it has unfinished jobs, only finished ones, or none.
    """

    number: int
    partitions: int
    state: Literal["draining", "drained", "gone"] = "draining"
    totals: dict[str, int] = {}
    """The counters of the generation, once it is gone."""

    @property
    def numbers(self) -> range:
        """Its partitions."""
        return range(
            self.number * GENERATION_SPAN_PARTITIONS,
            self.number * GENERATION_SPAN_PARTITIONS + self.partitions,
        )

    def places(self, numbers: Iterable[int]) -> frozenset[int]:
        """The places of those of these partitions that are its own."""
        return frozenset(index_in_generation(number) for number in numbers if number in self.numbers)

    def home(self, digest: bytes) -> int:
        """The partition of a key or an id."""
        return self.number * GENERATION_SPAN_PARTITIONS + partition_of(digest, self.partitions)

    def home_of_id(self, id: str) -> int:
        """The partition of a job that no lane asks for."""
        return self.number * GENERATION_SPAN_PARTITIONS + partition_of_id(id, self.partitions)

    def home_of(self, together: bytes | None, id: str) -> int:
        """The partition of a job: of what it must stay together with, else of its id."""
        return self.home(together) if together is not None else self.home_of_id(id)

    def homes(self, lane: bytes, later: Generation, number: int) -> Sequence[int]:
        """Where jobs were before that partition `number` of a later generation has in this lane.

        A key has one partition. But where a partition is one lane, its keys may come from several: from all
        whose place leaves the same remainder, divided by what both counts are multiples of.
        """
        if lane != PARTITION_LANE:
            return [self.home(lane[:8])]  # what is behind that says what kind of lane it is
        step = gcd(self.partitions, later.partitions)
        return self.numbers[index_in_generation(number) % step :: step]


class Layout(msgspec.Struct, frozen=True):
    """The generation in force, the earlier ones (oldest first), and the next partition count."""

    generation: int = 0
    partitions: int = 1
    older: tuple[Generation, ...] = ()
    coming: int | None = None
    counts: tuple[int, ...] = ()
    """How many partitions the queue had before. Code that still says one of these follows the server."""
    past: dict[str, int] = {}
    """The counters of generations that are forgotten."""

    @property
    def current(self) -> Generation:
        return Generation(self.generation, self.partitions)

    def home(self, digest: bytes) -> int:
        """The partition of a key or an id now."""
        return self.generation * GENERATION_SPAN_PARTITIONS + partition_of(digest, self.partitions)

    def home_of_id(self, id: str) -> int:
        """The partition of a job without a lane: the one in its id, if it has one."""
        return self.generation * GENERATION_SPAN_PARTITIONS + partition_of_id(id, self.partitions)

    def any_home(self, n: int) -> int:
        """The partition of the n-th job that may go to any."""
        return self.generation * GENERATION_SPAN_PARTITIONS + n % self.partitions

    @property
    def generations(self) -> list[Generation]:
        """All that may have jobs, the oldest first.

        Jobs move towards the last: who looks in this order misses none.
        """
        return [*(older for older in self.older if older.state != "gone"), self.current]

    @property
    def busy(self) -> list[Generation]:
        """All that may have unfinished jobs: what workers read."""
        return [*(older for older in self.older if older.state == "draining"), self.current]

    @property
    def draining(self) -> list[Generation]:
        return self.busy[:-1]

    @property
    def settled(self) -> bool:
        """No change is under way."""
        return self.coming is None and not self.draining

    def in_all(self, counted: dict[str, int]) -> dict[str, int]:
        """The counters of the present and the former partitions."""
        for gone in (self.past, *(older.totals for older in self.older if older.state == "gone")):
            counted = sum_totals(counted, gone)
        return counted

    def generation_with(self, number: int) -> Generation:
        """The one that a partition belongs to."""
        return next(generation for generation in self.generations if number in generation.numbers)

    def before(self, number: int) -> list[Generation]:
        """The generations that come before a partition's own and may have unfinished jobs."""
        return [older for older in self.draining if older.number < generation_of(number)]

    # What becomes of it. Each of these is one step on the server, and what it was before must still be there.

    def begins(self, partitions: int) -> Layout:
        """Another count is agreed on; nobody uses it yet."""
        return msgspec.structs.replace(self, coming=partitions)

    def switched(self) -> Layout:
        """Nothing can get into the partitions there are any more: the new ones are in force."""
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
        """Its names are gone: only what was counted is left of it."""
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
    """A partition's place in its generation: what people see."""
    return number % GENERATION_SPAN_PARTITIONS


def generation_of(number: int) -> int:
    return number // GENERATION_SPAN_PARTITIONS


def sum_totals(totals: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: totals.get(name, 0) + more.get(name, 0) for name in {*totals, *more}}
