"""Letters: the finished jobs of a queue, looked through and dealt with many at a time. A Queue has these methods.

Every call to the server is bounded, also with a million dead letters. What was redriven or removed is gone from the list,
so whoever is interrupted goes on by calling again.
"""

from __future__ import annotations

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Unpack

from qbull.client import Client
from qbull.core.failures import fingerprint, normal_form
from qbull.core.ids import new_token
from qbull.core.job import Garbage, JobInfo, State, moment
from qbull.core.wanted import Filters, Wanted
from qbull.errors import LONGEST, ArgumentsError
from qbull.store.finished import Span, newest_first, oldest_first
from qbull.store.inspect import Found, server_time, with_progress
from qbull.store.partition import Again, Partition

LOOK = 5_000
"""Jobs that one search looks at: a page may come back with fewer than asked for, and a cursor to go on with."""
BATCH = 100

_CURSOR = re.compile(r"\d+-\d+/\d+|")


@dataclass(frozen=True, slots=True)
class Page:
    """`next` is the cursor of the page after this one; None where there is no more."""

    jobs: list[JobInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Dead letters that failed for the same reason. `error` is that without its details, `last` the newest of them."""

    fingerprint: str
    error: str
    count: int
    tasks: tuple[str, ...]
    first_at: datetime
    last_at: datetime
    last: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """How far a redrive has come: dead letters sent round again, and all that were looked at."""

    redriven: int
    looked_at: int


class Letters(ABC):
    """What a queue can do with its finished jobs."""

    async def search(
        self,
        state: State = "failed",
        *,
        limit: int = 50,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page:
        """Finished jobs by `task`, `error_contains`, `fingerprint`, `after` and `before`, the newest first, in pages."""
        _check_finished(state)
        _check_count("limit", limit, most=1000)
        partitions = await self._partitions()
        found, after = await _search(partitions, state, Wanted(**filters), limit, cursor)
        return Page([self._info(job) for job in await with_progress(partitions, found)], after)

    async def failures(self, *, scan: int = 10_000, **filters: Unpack[Filters]) -> list[FailureGroup]:
        """The newest `scan` dead letters, grouped by what failed."""
        _check_count("scan", scan)
        return await _groups(await self._partitions(), Wanted(**filters), scan)

    async def redrive(
        self,
        *,
        limit: int | None = None,
        rate: float | None = None,
        on_step: Callable[[Redriven], object] | None = None,
        **filters: Unpack[Filters],
    ) -> int:
        """Send dead letters round again, the oldest first, at most `rate` in a second; answers with how many.

        What fails meanwhile is left out. Whoever is interrupted goes on by calling again.
        """
        if limit is not None:
            _check_count("limit", limit)
        if rate is not None and not 0 < rate < float("inf"):
            raise ArgumentsError(f"rate={rate!r}: give a number of jobs in a second, more than 0")
        return await _redrive(
            self._client(),
            await self._partitions(),
            Wanted(**filters),
            limit=limit,
            rate=rate,
            on_step=on_step,
        )

    async def clean(
        self,
        state: State,
        *,
        older_than: float = 0.0,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> int:
        """Forget finished jobs that ended more than so many seconds ago; answers with how many."""
        _check_finished(state)
        if limit is not None:
            _check_count("limit", limit)
        if not 0 <= older_than <= LONGEST:
            raise ArgumentsError(f"older_than={older_than!r}: give a number of seconds from 0")
        return await _clean(
            self._client(),
            await self._partitions(),
            state,
            Wanted(**filters),
            older_than=older_than,
            limit=limit,
        )

    @abstractmethod
    def _client(self) -> Client: ...
    @abstractmethod
    async def _partitions(self) -> list[Partition]: ...
    @abstractmethod
    def _info(self, job: Found) -> JobInfo: ...


async def _search(
    partitions: Sequence[Partition], state: State, wanted: Wanted, limit: int, cursor: str | None
) -> tuple[list[Found], str | None]:
    """The newest first, over all partitions."""
    cursors = _cursors(cursor, len(partitions))
    found: list[Found] = []
    looked = 0
    async with aclosing(_merged(partitions, state, _span(wanted), cursors)) as jobs:
        async for job in jobs:
            looked += 1
            if wanted.accepts(job.body().task, _error(job)):
                found.append(job)
            if len(found) >= limit or looked >= LOOK:
                return found, ",".join(cursors)
    return found, None


async def _groups(partitions: Sequence[Partition], wanted: Wanted, most: int) -> list[FailureGroup]:
    """The newest dead letters by what failed, the most frequent first."""
    by: dict[str, FailureGroup] = {}
    looked = 0
    async with aclosing(_merged(partitions, "failed", _span(wanted), [""] * len(partitions))) as jobs:
        async for job in jobs:
            looked += 1
            if wanted.accepts(job.body().task, _error(job)):
                name = fingerprint(_error(job))
                by[name] = _joined(by.get(name), name, job)
            if looked >= most:
                break
    return sorted(by.values(), key=lambda group: (-group.count, group.first_at))


async def _redrive(
    client: Client,
    partitions: Sequence[Partition],
    wanted: Wanted,
    *,
    limit: int | None,
    rate: float | None,
    on_step: Callable[[Redriven], object] | None,
) -> int:
    """Send dead letters round again, the oldest of each partition first, so that a key keeps its order."""
    redriven = looked = 0
    batch = BATCH if rate is None else max(1, min(BATCH, int(rate / 10)))
    pace = _Pace(rate)
    for partition in partitions:
        async for letters in oldest_first(partition, "failed", _span(wanted)):
            jobs = [job for job in letters if wanted.accepts(job.body().task, _error(job))]
            looked += len(letters)
            while jobs and (limit is None or redriven < limit):
                room = batch if limit is None else min(batch, limit - redriven)
                some, jobs = jobs[:room], jobs[room:]
                await pace.wait(redriven + len(some))
                redriven += await _retry(client, partition, some)
                if on_step is not None:
                    on_step(Redriven(redriven, looked - len(jobs)))
            if limit is not None and redriven >= limit:
                return redriven
    return redriven


async def _clean(
    client: Client,
    partitions: Sequence[Partition],
    state: State,
    wanted: Wanted,
    *,
    older_than: float,
    limit: int | None,
) -> int:
    """Forget finished jobs that ended more than so many seconds ago, the oldest first."""
    removed = 0
    for partition in partitions:
        room = None if limit is None else limit - removed
        if room == 0:
            break
        if wanted == Wanted():
            removed += await _clean_all(client, partition, state, older_than, room)
        else:
            removed += await _clean_some(client, partition, state, wanted, older_than, room)
    return removed


async def _retry(client: Client, partition: Partition, letters: Sequence[Found]) -> int:
    jobs = [Again(job.id, job.place, record) for job in letters if (record := _again(job)) is not None]
    if not jobs:
        return 0
    words = await client.store.patiently(partial(partition.retry, new_token(), jobs))
    return words.count("retried")


def _again(job: Found) -> bytes | None:
    try:
        return job.again()
    except Garbage:  # what another program wrote into the queue cannot be run
        return None


async def _clean_all(
    client: Client, partition: Partition, state: State, age: float, limit: int | None
) -> int:
    removed, more = 0, True
    while more and (limit is None or removed < limit):
        most = 500 if limit is None else min(500, limit - removed)
        n, more = await client.store.patiently(partial(partition.clean, new_token(), state, age, most))
        removed += n
    return removed


async def _clean_some(
    client: Client, partition: Partition, state: State, wanted: Wanted, age: float, limit: int | None
) -> int:
    removed = 0
    span = _span(wanted)
    if age > 0:
        oldest = int((await client.store.patiently(partial(server_time, partition.server)) - age) * 1000)
        span = Span(span.after_ms, oldest if span.before_ms is None else min(oldest, span.before_ms))
    async for letters in oldest_first(partition, state, span):
        jobs = [(job.id, job.place) for job in letters if wanted.accepts(job.body().task, _error(job))]
        while jobs and (limit is None or removed < limit):
            room = BATCH if limit is None else min(BATCH, limit - removed)
            some, jobs = jobs[:room], jobs[room:]
            words = await client.store.patiently(partial(partition.remove, new_token(), some))
            removed += words.count("removed")
        if limit is not None and removed >= limit:
            break
    return removed


async def _merged(
    partitions: Sequence[Partition], state: State, span: Span, cursors: list[str]
) -> AsyncGenerator[Found, None]:
    """The jobs of all partitions, the newest first. `cursors` are kept behind what was given out."""
    readers = {n: newest_first(partition, state, span, cursors[n]) for n, partition in enumerate(partitions)}
    heads: dict[int, tuple[str, Found] | None] = {}
    try:
        for n, reader in readers.items():
            heads[n] = await anext(reader, None)
        while there := {n: head for n, head in heads.items() if head is not None}:
            newest = max(there, key=lambda n: (there[n][1].finished_ms or 0, -n))
            cursors[newest], job = there[newest]
            yield job
            heads[newest] = await anext(readers[newest], None)
    finally:
        for reader in readers.values():
            await reader.aclose()


def _cursors(cursor: str | None, partitions: int) -> list[str]:
    if cursor is None:
        return [""] * partitions
    found = cursor.split(",")
    if len(found) != partitions or not all(_CURSOR.fullmatch(part) for part in found):
        raise ArgumentsError(f"cursor={cursor[:80]!r}: give what the page before has as its next")
    return found


def _joined(group: FailureGroup | None, name: str, job: Found) -> FailureGroup:
    """The group with one more job, which is older than all that are in it."""
    at, task = moment(job.finished_ms or 0), job.body().task
    if group is None:
        return FailureGroup(name, normal_form(_error(job)), 1, (task,), at, at, job.id)
    tasks = group.tasks if task in group.tasks else tuple(sorted((*group.tasks, task)))
    return replace(group, count=group.count + 1, tasks=tasks, first_at=at)


def _check_finished(state: State) -> None:
    if state not in ("completed", "failed", "cancelled"):
        raise ArgumentsError(f"state {state!r}: use completed, failed or cancelled")


def _check_count(name: str, value: int, most: int = 10**9) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ArgumentsError(f"{name}={value!r}: give a whole number from 1 to {most:,}")


def _error(job: Found) -> str:
    return (job.ending.error if job.ending is not None else None) or ""


def _span(wanted: Wanted) -> Span:
    return Span(wanted.after_ms, wanted.before_ms)


class _Pace:
    """No more than `rate` in a second, counted from the first."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()

    async def wait(self, count: int) -> None:
        if self._rate is not None:
            await asyncio.sleep(max(0.0, self._began + count / self._rate - time.monotonic()))
