"""Finished jobs, read in bounded steps: to browse them, or to process many of them.

An entry of a stream holds up to 16 jobs that finished together. Some of them may have been removed since. If
all are removed, the entry is deleted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from qbull.core.record import State, split_ending
from qbull.store.connection import fan_out
from qbull.store.read.inspect import POSITION_PREFIXES, StoredJob, ms_of
from qbull.store.verbs.partition import Partition

_POSITION_PATTERN = re.compile(r"([0-9]{1,15}-[0-9]{1,19})/([0-9]{1,6}):([0-9]{1,9})")

MIN_FINISHED_BATCH_SIZE, MAX_FINISHED_BATCH_SIZE = 4, 256
"""Entries in one call."""
FINISHED_BATCH_TARGET_BYTES = 1 << 20
"""Target size of a reply. The next call asks for more or fewer entries, depending on the records' size."""


class TimeSpan(msgspec.Struct, frozen=True):
    """A range of milliseconds on the server's clock, both ends included."""

    after_ms: int | None = None
    before_ms: int | None = None

    @property
    def oldest(self) -> str:
        return "-" if self.after_ms is None else str(max(self.after_ms, 0))

    @property
    def newest(self) -> str:
        return "+" if self.before_ms is None else str(max(self.before_ms, 0))


class FinishedPosition(msgspec.Struct, frozen=True):
    """The job to continue after. Jobs are ordered by time, and by partition within one moment.

    `done` counts the jobs of its entry that were read already.
    """

    entry: str
    done: int
    partition: int

    @classmethod
    def parse(cls, text: str) -> FinishedPosition:
        """Parse a position. Raises ValueError if the text is none."""
        found = _POSITION_PATTERN.fullmatch(text)
        if found is None:
            raise ValueError(text)
        return cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"{self.entry}/{self.done}:{self.partition}"

    def upto(self, partition: int, span: TimeSpan) -> str:
        """The newest entry of a partition that may follow this position."""
        ms = int(self.entry.partition("-")[0])
        if partition == self.partition:
            return self.entry
        ms -= partition < self.partition
        return str(max(ms if span.before_ms is None else min(ms, span.before_ms), 0))


async def merged(
    partitions: Sequence[Partition], state: State, span: TimeSpan, after: FinishedPosition | None = None
) -> AsyncGenerator[tuple[FinishedPosition, StoredJob], None]:
    """The jobs of all partitions, the newest first, each with its position.

    Reads only partitions that have jobs to show.
    """
    upto = [span.newest if after is None else after.upto(one.number, span) for one in partitions]
    heads = await newest(partitions, state, upto, span.oldest)
    line = [(-ms_of(entry), n) for n, entry in enumerate(heads) if entry]
    heapify(line)
    readers: dict[int, AsyncGenerator[tuple[FinishedPosition, StoredJob], None]] = {}
    waiting: dict[int, tuple[FinishedPosition, StoredJob]] = {}
    try:
        while line:
            _, n = heappop(line)
            if n in waiting:
                yield waiting.pop(n)
            elif n not in readers:
                skip = after.done if after is not None and after.partition == partitions[n].number else 0
                readers[n] = newest_first(partitions[n], state, TimeSpan(span.after_ms), upto[n], skip)
            following = await anext(readers[n], None)
            if following is not None:
                waiting[n] = following
                heappush(line, (-(following[1].finished_ms or 0), n))
    finally:
        for reader in readers.values():
            await reader.aclose()


async def newest(
    partitions: Sequence[Partition], state: State, upto: Sequence[str], oldest: str
) -> list[bytes]:
    """The newest entry of each partition up to a position of its own; empty if there is none."""
    calls = [(one.base, state, last, oldest) for one, last in zip(partitions, upto, strict=True)]
    found: list[bytes] = (
        await fan_out.run_scripts(partitions[0].server, "newest_finished", calls) if calls else []
    )
    return found


async def newest_first(
    partition: Partition, state: State, span: TimeSpan, upto: str = "", done: int = 0
) -> AsyncGenerator[tuple[FinishedPosition, StoredJob], None]:
    """The jobs with their positions, the newest first; from an entry on, without its `done` jobs."""
    entry, skip, step = upto, done, MIN_FINISHED_BATCH_SIZE
    upto = upto or span.newest
    while True:
        rows = await partition.server.call(
            "XREVRANGE", partition.base + state, upto, span.oldest, "COUNT", step
        )
        for (at, _), jobs in zip(rows, await _jobs_of_entries(partition, state, rows), strict=True):
            for n, job in enumerate(reversed(jobs), 1):
                if job is not None and (n > skip or at.decode() != entry):
                    yield FinishedPosition(at.decode(), n, partition.number), job
        if len(rows) < step:
            return
        upto, step = f"({rows[-1][0].decode()}", _next_batch_size(step, rows)


async def oldest_first(
    partition: Partition, state: State, span: TimeSpan
) -> AsyncGenerator[list[StoredJob], None]:
    """The jobs that are there now, in lists of bounded length. Jobs that finish meanwhile are left out."""
    last = await partition.server.call("XREVRANGE", partition.base + state, span.newest, "-", "COUNT", 1)
    if not last:
        return
    after, upto, step = span.oldest, last[0][0], MIN_FINISHED_BATCH_SIZE
    while True:
        rows = await partition.server.call("XRANGE", partition.base + state, after, upto, "COUNT", step)
        if not rows:
            return
        yield [
            job for jobs in await _jobs_of_entries(partition, state, rows) for job in jobs if job is not None
        ]
        after, step = f"({rows[-1][0].decode()}", _next_batch_size(step, rows)


async def _jobs_of_entries(
    partition: Partition, state: State, rows: list[Any]
) -> list[list[StoredJob | None]]:
    """The jobs of each entry; None if the entry no longer exists."""
    ids = [id for _, fields in rows for id in fields[::2]]
    positions = iter(await partition.server.call("HMGET", partition.base + "index", *ids) if ids else ())
    return [
        [
            _stored_job(partition, state, entry, id, finished)
            if next(positions) == POSITION_PREFIXES[state] + entry
            else None
            for id, finished in zip(fields[::2], fields[1::2], strict=True)
        ]
        for entry, fields in rows
    ]


def _stored_job(partition: Partition, state: State, entry: bytes, id: bytes, finished: bytes) -> StoredJob:
    return StoredJob(
        id.decode("utf-8", "replace"),
        state,
        *split_ending(finished),
        finished_ms=int(entry.partition(b"-")[0]),
        partition=partition.number,
        position=POSITION_PREFIXES[state] + entry,
    )


def _next_batch_size(step: int, rows: list[Any]) -> int:
    bytes_ = sum(len(part) for _, fields in rows for part in fields)
    return max(
        1, min(step * 4, MAX_FINISHED_BATCH_SIZE, step * FINISHED_BATCH_TARGET_BYTES // max(bytes_, 1))
    )
