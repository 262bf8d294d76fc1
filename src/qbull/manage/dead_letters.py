"""Dead letters of a queue by kind: each is read once, and all again only if some were removed.

A job of a flow that failed because of another one is a cascade. Cascades are counted by minute too, so that
they can count under their cause.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from qbull.core.failures import fingerprint, normal_form
from qbull.core.job_filter import JobFilter
from qbull.core.record import to_datetime
from qbull.manage.bulk import error_of
from qbull.manage.search import FailureGroup
from qbull.store.read.finished import FinishedPosition, TimeSpan, merged, newest, newest_first
from qbull.store.read.inspect import Counts, StoredJob, counts
from qbull.store.verbs.partition import Partition

if TYPE_CHECKING:
    from qbull.queue import Queue

MAX_TALLIED_DEAD_LETTERS = 10_000
"""Dead letters of a queue that are read, the newest."""
REREAD_PAUSE_FACTOR = 10
"""After removals all are read again, at most for a tenth of the time."""
_Entry = tuple[int, int]
"""The number of an entry in its partition: milliseconds and sequence."""


@dataclass(slots=True)
class DeadLetterTally:
    """The dead letters that were read, by kind.

    Attributes:
        groups: By fingerprint.
        minutes: Of the cascades, how many failed in each minute, by fingerprint.
        read: How many were read.
        unread: How many older ones were not read.
        newest: The newest entry that was read of each partition.
    """

    groups: dict[str, FailureGroup] = field(default_factory=dict)
    minutes: dict[str, Counter[int]] = field(default_factory=dict)
    read: int = 0
    unread: int = 0
    newest: dict[int, _Entry] = field(default_factory=dict)

    @property
    def sorted_groups(self) -> list[FailureGroup]:
        """The most frequent first."""
        return sorted(self.groups.values(), key=lambda group: (-group.count, group.first_at))

    @property
    def cascades(self) -> int:
        return sum(group.count for group in self.groups.values() if group.cascade)

    def cascades_since(self, minute: int) -> list[FailureGroup]:
        """The cascades from a minute on."""
        found = []
        for name, by_minute in self.minutes.items():
            count = sum(n for at, n in by_minute.items() if at >= minute)
            if count:
                found.append(replace(self.groups[name], count=count))
        return found

    def add(self, job: StoredJob, wanted: JobFilter) -> None:
        body, error = job.body(), error_of(job)
        name, at = fingerprint(wanted.shown(body, error)), to_datetime(job.finished_ms or 0)
        before = self.groups.get(name)
        if before is None:
            group = FailureGroup(name, normal_form(error), 1, (body.task,), at, at, job.id, error)
        else:
            tasks = before.tasks if body.task in before.tasks else tuple(sorted((*before.tasks, body.task)))
            group = replace(before, count=before.count + 1, tasks=tasks, first_at=min(before.first_at, at))
            if at > before.last_at:
                group = replace(group, last_at=at, last=job.id, last_error=error)
        self.groups[name] = group
        self.read += 1
        if group.cascade:
            self.minutes.setdefault(name, Counter())[(job.finished_ms or 0) // 60_000] += 1


class DeadLetterReader:
    """Keeps the tally of one queue. Hidden values play no part in it."""

    def __init__(self, queue: Queue, hidden: frozenset[str]) -> None:
        self._queue = queue
        self._filter = JobFilter(hidden=hidden)
        self._tally: DeadLetterTally | None = None
        self._numbers: tuple[int, ...] = ()
        self._known: tuple[int, int] | None = None
        self._next_reread = 0.0
        self._turn = asyncio.Lock()
        self._reading: asyncio.Task[DeadLetterTally] | None = None

    async def soon(self, seconds: float, counted: Counts | None = None) -> DeadLetterTally:
        """The tally, or the one before if reading takes longer. Reading continues."""
        if self._tally is not None and counted is not None and _state_of(counted) == self._known:
            return self._tally
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.get(counted))
        done, _ = await asyncio.wait([self._reading], timeout=seconds)
        if done:
            return self._reading.result()
        return self._tally or DeadLetterTally()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def get(self, counted: Counts | None = None) -> DeadLetterTally:
        """The tally as of now. `counted` are the counts of the queue, if the caller has just read them."""
        async with self._turn:
            partitions = await self._queue._partitions()
            now = _state_of(counted or await _counts(partitions))
            numbers = tuple(one.number for one in partitions)
            if self._tally is None or numbers != self._numbers:
                self._numbers, self._known = numbers, now
                return await self._read_all(partitions)
            if now == self._known:
                return self._tally
            await self._read_new(partitions, self._tally)
            failed = (await _counts(partitions)).failed
            if failed >= self._tally.read + self._tally.unread:
                self._known = now
            elif time.monotonic() >= self._next_reread:
                self._known = now
                return await self._read_all(partitions)
            return self._tally

    async def _read_all(self, partitions: Sequence[Partition]) -> DeadLetterTally:
        began, tally = time.monotonic(), DeadLetterTally()
        async with aclosing(merged(partitions, "failed", TimeSpan())) as jobs:
            async for position, job in jobs:
                if tally.read >= MAX_TALLIED_DEAD_LETTERS:
                    break
                _add(tally, position, job, self._filter)
                if tally.read % 100 == 0:
                    await asyncio.sleep(0)  # Others want to be served.
        if tally.read >= MAX_TALLIED_DEAD_LETTERS:
            tally.unread = max((await _counts(partitions)).failed - tally.read, 0)
        took = time.monotonic() - began
        self._next_reread = time.monotonic() + REREAD_PAUSE_FACTOR * took
        self._tally = tally
        return tally

    async def _read_new(self, partitions: Sequence[Partition], tally: DeadLetterTally) -> None:
        heads = await newest(partitions, "failed", ["+"] * len(partitions), "-")
        for partition, head in zip(partitions, heads, strict=True):
            known = tally.newest.get(partition.number, (0, -1))
            if not head or _entry_of(head.decode()) <= known:
                continue
            span = TimeSpan(after_ms=known[0])
            async with aclosing(newest_first(partition, "failed", span)) as jobs:
                async for position, job in jobs:
                    if _entry_of(position.entry) > known:
                        _add(tally, position, job, self._filter)


def _add(tally: DeadLetterTally, position: FinishedPosition, job: StoredJob, wanted: JobFilter) -> None:
    tally.add(job, wanted)
    entry = _entry_of(position.entry)
    tally.newest[position.partition] = max(entry, tally.newest.get(position.partition, entry))


def _entry_of(text: str) -> _Entry:
    ms, _, sequence = text.partition("-")
    return int(ms), int(sequence)


async def _counts(partitions: Sequence[Partition]) -> Counts:
    return sum(await counts(partitions), Counts())


def _state_of(counted: Counts) -> tuple[int, int]:
    """How many dead letters there are, and how many jobs have ever failed."""
    return counted.failed, counted.totals.get("failed", 0)
