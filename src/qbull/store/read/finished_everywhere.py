"""Finished jobs of several queues and states in one list, the newest first.

Jobs that finished in the same millisecond are in the order of their sources. So one position, the last job
that was read, tells each source where to continue.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from qbull.core.record import State
from qbull.store.connection import fan_out
from qbull.store.read.finished import FinishedPosition, TimeSpan, newest_first
from qbull.store.read.inspect import StoredJob, ms_of
from qbull.store.verbs.partition import Partition

_POSITION = re.compile(
    r"([0-9]{1,15}-[0-9]{1,19})/([0-9]{1,6})@([A-Za-z0-9._-]{1,100})/([a-z]{1,20})/([0-9]{1,9})"
)
MAX_OPEN_READS = 16
"""Sources whose first jobs are read concurrently."""

Rank = tuple[str, State, int]
"""The queue, the state and the partition of a source: their order."""


@dataclass(frozen=True, slots=True)
class FinishedSource:
    """The finished jobs of one state in one partition."""

    partition: Partition
    state: State

    @property
    def rank(self) -> Rank:
        return self.partition.settings.name, self.state, self.partition.number


@dataclass(frozen=True, slots=True)
class MergedPosition:
    """The last job that was read: its entry, how many jobs of the entry were read, and its source."""

    entry: str
    done: int
    rank: Rank

    @classmethod
    def parse(cls, text: str) -> MergedPosition:
        """Parse a position. Raises ValueError if the text is none."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError(text)
        return cls(found[1], int(found[2]), (found[3], found[4], int(found[5])))  # type: ignore[arg-type]

    def __str__(self) -> str:
        queue, state, partition = self.rank
        return f"{self.entry}/{self.done}@{queue}/{state}/{partition}"

    def upto(self, rank: Rank, span: TimeSpan) -> str:
        """The newest entry of a source that may follow this position."""
        if rank == self.rank:
            return self.entry
        ms = ms_of(self.entry.encode()) - (rank < self.rank)
        return str(max(ms if span.before_ms is None else min(ms, span.before_ms), 0))


async def merge_finished(
    sources: Sequence[FinishedSource], span: TimeSpan, after: MergedPosition | None = None
) -> AsyncGenerator[tuple[MergedPosition, FinishedSource, StoredJob], None]:
    """The jobs of all sources, the newest first, each with its position. Reads only sources with jobs."""
    ordered = sorted(sources, key=lambda source: source.rank)
    upto = [span.newest if after is None else after.upto(one.rank, span) for one in ordered]
    calls = [
        (one.partition.base, one.state, last, span.oldest) for one, last in zip(ordered, upto, strict=True)
    ]
    heads = await fan_out.run_scripts(ordered[0].partition.server, "newest_finished", calls) if calls else []
    line = [(-ms_of(entry), n) for n, entry in enumerate(heads) if entry]
    heapify(line)
    readers: dict[int, AsyncGenerator[tuple[FinishedPosition, StoredJob], None]] = {}
    waiting: dict[int, tuple[FinishedPosition, StoredJob]] = {}

    async def open_source(n: int) -> None:
        source = ordered[n]
        skip = after.done if after is not None and after.rank == source.rank else 0
        readers[n] = newest_first(source.partition, source.state, TimeSpan(span.after_ms), upto[n], skip)
        await advance(n)

    async def advance(n: int) -> None:
        following = await anext(readers[n], None)
        if following is not None:
            waiting[n] = following
            heappush(line, (-(following[1].finished_ms or 0), n))

    try:
        while line:
            _, n = heappop(line)
            if n in waiting:
                place, job = waiting.pop(n)
                yield MergedPosition(place.entry, place.done, ordered[n].rank), ordered[n], job
                await advance(n)
                continue
            some = [n]
            while line and len(some) < MAX_OPEN_READS and line[0][1] not in waiting:
                some.append(heappop(line)[1])
            for failed in await asyncio.gather(*map(open_source, some), return_exceptions=True):
                if failed is not None:
                    raise failed
    finally:
        for reader in readers.values():
            await reader.aclose()
