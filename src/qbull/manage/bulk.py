"""Bulk: do something with all jobs of a queue that are wanted, a bounded number at a time.

Finished jobs are met the oldest first, unfinished ones in no order. What was done is not met again, so whoever is interrupted
goes on by beginning anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from qbull.core.ids import new_token
from qbull.core.job_filter import JobFilter
from qbull.core.record import Ending, State, UnreadableRecord, append_ending
from qbull.store.read.finished import TimeSpan, oldest_first
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.read.inspect import StoredJob, server_time
from qbull.store.read.unfinished import scan_unfinished
from qbull.store.verbs.partition import JobToRetry, Partition

if TYPE_CHECKING:
    from qbull.produce.client import Client

BULK_BATCH_SIZE = 100
SWEEP_BATCH_SIZE = 250
"""Jobs that one call removes without looking at them."""

BulkAction: TypeAlias = "Callable[[Client, Partition, Sequence[StoredJob]], Awaitable[int]]"
"""Does it, and answers with how many it was done to."""


class BulkStep(NamedTuple):
    """How far it has come: jobs that it was done to, and all that were looked at."""

    done: int
    looked_at: int


@dataclass(frozen=True)
class BulkOperation:
    """What is to be done with which jobs. `age` are seconds that must have passed since their end; `rate` jobs a second at most."""

    act: BulkAction
    state: State
    wanted: JobFilter = field(default_factory=JobFilter)
    age: float = 0.0
    limit: int | None = None
    rate: float | None = None

    @property
    def is_all(self) -> bool:
        """All finished jobs of an age: which they are need not be looked at."""
        return self.state in FINISHED_STATES and self.wanted == JobFilter() and self.rate is None


async def run_bulk(
    client: Client,
    partitions: Sequence[Partition],
    wanted: BulkOperation,
    on_step: Callable[[BulkStep], object] | None = None,
) -> int:
    """Do it; answers with how many it was done to."""
    done = looked = 0
    batch = BULK_BATCH_SIZE if wanted.rate is None else max(1, min(BULK_BATCH_SIZE, int(wanted.rate / 10)))
    pace = _BulkThrottle(wanted.rate)
    for partition in partitions:
        if wanted.act is remove and wanted.is_all:
            done = await _sweep(client, partition, wanted, done, on_step)
            continue
        async with aclosing(_matching_jobs(client, partition, wanted)) as met:
            async for jobs, seen in met:
                looked += seen
                while jobs and (wanted.limit is None or done < wanted.limit):
                    room = batch if wanted.limit is None else min(batch, wanted.limit - done)
                    some, jobs = jobs[:room], jobs[room:]
                    await pace.wait(done + len(some))
                    done += await wanted.act(client, partition, some)
                    if on_step is not None:
                        on_step(BulkStep(done, looked - len(jobs)))
                if wanted.limit is not None and done >= wanted.limit:
                    return done
                if on_step is not None:
                    on_step(BulkStep(done, looked))
    return done


async def _sweep(
    client: Client,
    partition: Partition,
    wanted: BulkOperation,
    done: int,
    on_step: Callable[[BulkStep], object] | None,
) -> int:
    """Remove without looking; how many that makes, with what was done before."""
    more = True
    while more and (wanted.limit is None or done < wanted.limit):
        most = SWEEP_BATCH_SIZE if wanted.limit is None else min(SWEEP_BATCH_SIZE, wanted.limit - done)
        removed, more = await partition.clean(new_token(), wanted.state, wanted.age, most)
        done += removed
        if on_step is not None:
            on_step(BulkStep(done, done))
    return done


async def _matching_jobs(
    client: Client, partition: Partition, work: BulkOperation
) -> AsyncGenerator[tuple[list[StoredJob], int], None]:
    """The wanted jobs of a partition in lists of a bounded length, each with how many were looked at for it."""
    wanted = work.wanted
    if work.state in FINISHED_STATES:
        span = TimeSpan(wanted.after_ms, wanted.before_ms)
        if work.age > 0:
            now = await server_time(partition)
            oldest = int((now - work.age) * 1000)
            span = TimeSpan(span.after_ms, oldest if span.before_ms is None else min(oldest, span.before_ms))
        async with aclosing(oldest_first(partition, work.state, span)) as lists:
            async for letters in lists:
                yield [job for job in letters if wanted.accepts(job.body(), error_of(job))], len(letters)
        return
    async with aclosing(scan_unfinished(partition, work.state)) as steps:
        async for met in steps:
            yield [job for job in met.jobs if matches_unfinished(job, wanted)], met.looked


def matches_unfinished(job: StoredJob, wanted: JobFilter) -> bool:
    """Of an unfinished job."""
    return wanted.within(job.created_ms()) and wanted.accepts(job.body(), error_of(job))


def error_of(job: StoredJob) -> str:
    """Why it failed, for good or the last time."""
    if job.ending is not None:
        return job.ending.error or ""
    history = job.body().history
    return history[-1].error if history else ""


# What can be done.


async def retry(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Send finished ones round again."""
    some = [
        JobToRetry(job.id, job.position, record) for job in jobs if (record := _retry_record(job)) is not None
    ]
    if not some:
        return 0
    words = await partition.retry(new_token(), some)
    return words.count("retried")


async def remove(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Forget them. One that is no longer where it was seen stays, and one that a worker has."""
    some = [(job.id, job.position) for job in jobs]
    words = await partition.remove(new_token(), some)
    return words.count("removed")


async def cancel(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Cancel them; those that workers have are told to stop."""
    sealed = append_ending(Ending(0, 0.0, "", error="cancelled"))
    ids = [job.id for job in jobs]
    words = await partition.cancel(sealed, ids)
    return words.count("cancelled") + words.count("cancelling")


async def promote(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Let delayed ones run now."""
    done = 0
    for job in jobs:
        word = await partition.promote_one(new_token(), job.id)
        done += word == "promoted"
    return done


async def count(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Nothing: only count them."""
    return len(jobs)


def _retry_record(job: StoredJob) -> bytes | None:
    try:
        return job.again()
    except UnreadableRecord:  # what another program wrote into the queue cannot be run
        return None


class _BulkThrottle:
    """No more than `rate` in a second, counted from the first."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()

    async def wait(self, count: int) -> None:
        if self._rate is not None:
            await asyncio.sleep(max(0.0, self._began + count / self._rate - time.monotonic()))
