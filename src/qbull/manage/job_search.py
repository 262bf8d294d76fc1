"""Job search: find jobs of many queues and states with one query.

An answer takes a bounded time and a bounded number of bytes. It says how many jobs were read, of how many,
and has a cursor to continue. Running jobs come first; then finished jobs, the newest first over all queues,
in turn with jobs that wait, which have no order. The jobs of an answer are sorted by their time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from qbull.core.job_filter import JobFilter
from qbull.core.job_info import JobInfo
from qbull.core.job_query import JobQuery
from qbull.core.record import State
from qbull.errors import ArgumentsError
from qbull.manage.bulk import matches, matches_unfinished
from qbull.store.read import unfinished
from qbull.store.read.finished import TimeSpan
from qbull.store.read.finished_everywhere import FinishedSource, MergedPosition, merge_finished
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.read.inspect import StoredJob, counts
from qbull.store.read.pages import ReadBudget, active_jobs, with_progress
from qbull.store.verbs.partition import Partition

if TYPE_CHECKING:
    from qbull.queue import Queue

SEARCH_SECONDS = 0.4
"""How long one answer searches. The next one continues."""
FIRST_ANSWER_SECONDS = 0.1
"""How long the first answer searches, and others that have found something: people wait for it."""
SEARCH_LIMIT_BYTES = 8 << 20
"""The jobs of one answer take about so many bytes at most, and one more job."""
FINISHED_STEP_JOBS = 200
"""Finished jobs that are read before it is the turn of the waiting ones."""
MAX_ACTIVE_JOBS = 1000
"""Running jobs that are read of each partition."""
_NOTHING_LEFT = "$"
_CURSOR = re.compile(r"([0-9]{1,15})~([^~]{1,200})~([0-9]{1,9}):([0-9]{1,20}|\$):([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The queues to search, and the limits of one answer.

    Attributes:
        queues: The queues to search.
        query: Selects the jobs.
        hidden: Names of arguments, in lower case, whose values must not be found.
        limit: Maximum number of jobs.
        cursor: The `next` of the answer before.
        seconds: When the search stops, even if it has found less.
        is_quick: Whether the first answer, and one that has found something, stops sooner.
    """

    queues: Sequence[Queue]
    query: JobQuery
    hidden: frozenset[str] = frozenset()
    limit: int = 50
    cursor: str | None = None
    seconds: float = SEARCH_SECONDS
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The answer of a search.

    Attributes:
        jobs: Jobs that match, the newest first.
        scanned: How many jobs the search has read, since its first answer.
        total: How many jobs the queues have in the states of the query.
        next: The cursor to continue with; None if all jobs were read.
    """

    jobs: list[JobInfo]
    scanned: int
    total: int
    next: str | None


@dataclass(slots=True)
class SearchPosition:
    """Where a search is: in the finished jobs, and in the partitions with waiting ones."""

    scanned: int = 0
    finished: MergedPosition | None = None
    finished_done: bool = False
    place: int = 0
    inner: str = unfinished.SCAN_START
    skip: int = 0
    queued_done: bool = False

    @classmethod
    def parse(cls, cursor: str) -> SearchPosition:
        found = _CURSOR.fullmatch(cursor)
        try:
            if found is None or (found[4] != _NOTHING_LEFT and int(found[4]) >= 1 << 64):
                raise ValueError(cursor)
            over = found[2] == _NOTHING_LEFT
            return cls(
                int(found[1]),
                None if over or found[2] == "-" else MergedPosition.parse(found[2]),
                over,
                int(found[3]),
                found[4],
                int(found[5]),
                found[4] == _NOTHING_LEFT,
            )
        except ValueError:
            raise ArgumentsError(f"cursor={cursor[:80]!r}: give the `next` of the answer before") from None

    def __str__(self) -> str:
        finished = _NOTHING_LEFT if self.finished_done else str(self.finished or "-")
        inner = _NOTHING_LEFT if self.queued_done else self.inner
        return f"{self.scanned}~{finished}~{self.place}:{inner}:{self.skip}"


@dataclass(slots=True)
class _Place:
    """A partition with jobs that a search has to read, and their number by state."""

    queue: Queue
    partition: Partition
    counts: dict[State, int]

    @property
    def queued_state(self) -> State | Literal["queued"] | None:
        """The states of waiting jobs to read here."""
        waiting, delayed = self.counts.get("waiting"), self.counts.get("delayed")
        if waiting and delayed:
            return "queued"
        return "waiting" if waiting else "delayed" if delayed else None


@dataclass
class JobSearch:
    """A search over partitions, from one position to the next."""

    request: SearchRequest
    position: SearchPosition
    places: list[_Place]
    filter: JobFilter
    budget: ReadBudget = field(default_factory=lambda: ReadBudget(SEARCH_LIMIT_BYTES))
    found: list[tuple[_Place, StoredJob]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._given_ids = frozenset(self.request.query.words)  # They were found by their ids.
        began = time.monotonic()
        self._soon, self._until = began + FIRST_ANSWER_SECONDS, began + self.request.seconds
        self._place_of = {(one.queue.name, one.partition.number): one for one in self.places}

    @property
    def total(self) -> int:
        """How many jobs there are in the states of the query."""
        return sum(sum(place.counts.values()) for place in self.places)

    @property
    def scanned(self) -> int:
        at = self.position  # Jobs of a batch that is not read to its end count as well.
        return self.total if self.next is None else min(at.scanned + at.skip, self.total)

    @property
    def next(self) -> str | None:
        """The cursor to continue with; None if all jobs were read."""
        is_complete = self.position.finished_done and self.position.queued_done
        return None if is_complete else str(self.position)

    def is_full(self) -> bool:
        """Whether the answer has all the jobs or bytes that it may have."""
        return len(self.found) >= self.request.limit or self.budget.is_spent

    def take(self, place: _Place, job: StoredJob) -> None:
        if job.id not in self._given_ids:
            self.found.append((place, job))
            self.budget.spend(job)

    async def run(self) -> None:
        """Read running jobs once, then finished and waiting ones in turn: at least a step of each."""
        if self.request.cursor is None:
            await self._read_active()
        async with aclosing(self._finished_steps()) as finished, aclosing(self._queued_steps()) as queued:
            lines = [finished, queued]
            while lines:
                for line in list(lines):
                    await asyncio.sleep(0)  # Matching takes time, and others want to be served.
                    if self.is_full():
                        return
                    if await anext(line, None) is None:
                        lines.remove(line)
                if time.monotonic() >= (self._soon if self._may_end_soon() else self._until):
                    return

    def _may_end_soon(self) -> bool:
        return self.request.is_quick and (self.request.cursor is None or bool(self.found))

    async def _read_active(self) -> None:
        for place in self.places:
            if not place.counts.get("active"):
                continue
            async with aclosing(active_jobs(place.partition, MAX_ACTIVE_JOBS)) as jobs:
                async for job in jobs:
                    self.position.scanned += 1
                    if matches_unfinished(job, self.filter, place.queue.name):
                        self.take(place, job)

    async def _finished_steps(self) -> AsyncGenerator[bool, None]:
        """Read finished jobs; yields after some of them."""
        position, half = self.position, max(self.request.limit // 2, 1)
        if position.finished_done:
            return
        sources = [
            FinishedSource(place.partition, state)
            for place in self.places
            for state in FINISHED_STATES
            if place.counts.get(state)
        ]
        span = TimeSpan(self.filter.after_ms, self.filter.before_ms)
        looked, before = 0, len(self.found)
        async with aclosing(merge_finished(sources, span, position.finished)) as jobs:
            async for at, source, job in jobs:
                position.finished = at
                position.scanned += 1
                looked += 1
                queue = source.partition.settings.name
                if matches(job, self.filter, queue):
                    self.take(self._place_of[queue, source.partition.number], job)
                if self.is_full() or looked >= FINISHED_STEP_JOBS or len(self.found) - before >= half:
                    looked = 0
                    yield True
                    before = len(self.found)
        position.finished_done = True

    async def _queued_steps(self) -> AsyncGenerator[bool, None]:
        """Read jobs that wait, a partition of each queue in turn; yields after each call to the server."""
        at = self.position
        while at.place < len(self.places):
            place = self.places[at.place]
            state = place.queued_state
            if state is None:
                at.place += 1
                continue
            scan = unfinished.scan_unfinished(place.partition, state, at.inner, ahead=True)
            async with aclosing(scan) as steps:
                async for met in steps:
                    while self._take_batch(place, met):
                        yield True
                    yield True
        at.queued_done = True

    def _take_batch(self, place: _Place, met: unfinished.ScanBatch) -> bool:
        """Take the matches of a batch that fit; whether the answer was full before the last of them."""
        at = self.position
        some = [job for job in met.jobs if matches_unfinished(job, self.filter, place.queue.name)]
        old = min(at.skip, len(some))
        room = max(self.request.limit - len(self.found), 0)
        for job in some[old : old + room]:
            self.take(place, job)
        if len(some) - old > room:
            at.skip = old + room
            return True
        at.skip -= old
        at.scanned += len(met.jobs)
        at.inner = met.cursor
        if met.cursor == unfinished.SCAN_END:
            at.place, at.inner, at.skip = at.place + 1, unfinished.SCAN_START, 0
        return False


async def find_jobs(request: SearchRequest) -> FoundJobs:
    """Search the jobs of some queues. Answers after a bounded time; `next` continues."""
    query = request.query
    queues = [queue for queue in request.queues if query.allows_queue(queue.name)]
    first = request.cursor is None
    by_id = await _by_id(request, queues, query.ids or query.words) if first else []
    if query.ids:
        return FoundJobs([queue._info(job) for queue, job in by_id], len(by_id), len(by_id), None)
    search = await start_search(request, queues)
    await search.run()
    listed = [(job, queue._info(job)) for queue, job in by_id]
    jobs = [job for _, job in search.found]
    shown = await with_progress([place.partition for place in search.places], jobs) if jobs else []
    listed += [(job, place.queue._info(job)) for (place, _), job in zip(search.found, shown, strict=True)]
    listed.sort(key=lambda pair: -_time_ms(pair[0]))
    return FoundJobs([info for _, info in listed], search.scanned, search.total, search.next)


async def start_search(request: SearchRequest, queues: Sequence[Queue]) -> JobSearch:
    """A search of these queues, which has read nothing yet."""
    position = SearchPosition() if request.cursor is None else SearchPosition.parse(request.cursor)
    wanted = JobFilter(query=request.query, hidden=request.hidden)
    return JobSearch(request, position, await _places(queues, request.query), wanted)


async def _places(queues: Sequence[Queue], query: JobQuery) -> list[_Place]:
    """The partitions, with the number of their jobs in the states of a query: the first of each queue, then
    the second of each …
    """
    read = await asyncio.gather(*(queue._partitions() for queue in queues))
    pairs = [(queue, one) for queue, partitions in zip(queues, read, strict=True) for one in partitions]
    found = [
        _Place(queue, partition, {state: getattr(there, state) for state in query.states})
        for (queue, partition), there in zip(pairs, await counts([one for _, one in pairs]), strict=True)
    ]
    return sorted(found, key=lambda place: (place.partition.number, place.queue.name))


async def _by_id(
    request: SearchRequest, queues: Sequence[Queue], ids: Sequence[str]
) -> list[tuple[Queue, StoredJob]]:
    """The jobs with these ids that match."""
    wanted = JobFilter(query=request.query, hidden=request.hidden)

    async def one(queue: Queue, id: str) -> list[tuple[Queue, StoredJob]]:
        there = await queue.app._client().find(queue.settings, id)
        is_match = there is not None and _is_match(there[1], wanted, queue.name)
        return [(queue, there[1])] if there is not None and is_match else []

    found = await asyncio.gather(*(one(queue, id) for queue in queues for id in ids))
    return [pair for pairs in found for pair in pairs]


def _is_match(job: StoredJob, wanted: JobFilter, queue: str) -> bool:
    return wanted.within(job.finished_ms or job.created_ms()) and matches(job, wanted, queue)


def _time_ms(job: StoredJob) -> int:
    """The time by which jobs are sorted: of the end, of the start, or of enqueueing."""
    return job.finished_ms or job.started_ms or job.created_ms()
