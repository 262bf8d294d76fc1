"""Bulk: apply an action to all jobs of a queue that match a filter, a bounded number at a time.

It visits finished jobs from the oldest on and unfinished jobs in no order. It does not visit a job again
after the action, so an interrupted caller continues by starting again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from qbull.core.ids import new_token
from qbull.core.job_conflicts import cancel_reason
from qbull.core.job_filter import JobFilter, JobOrigin
from qbull.core.record import Ending, ExtendedBody, State, UnreadableRecord, append_ending
from qbull.store.read.finished import TimeSpan, oldest_first
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.read.inspect import StoredJob, server_time
from qbull.store.read.unfinished import scan_unfinished
from qbull.store.verbs.partition import JobToRetry, Partition

if TYPE_CHECKING:
    from qbull.produce.client import Client

BULK_BATCH_SIZE = 100
SWEEP_BATCH_SIZE = 250
"""Maximum number of jobs that one call removes without reading them."""

BulkAction: TypeAlias = "Callable[[Client, Partition, Sequence[StoredJob]], Awaitable[int]]"
"""Applies the action, and returns the number of jobs that it changed."""


class BulkStep(NamedTuple):
    """The progress: the number of changed jobs, and of all jobs that were read."""

    done: int
    looked_at: int


class BulkOperation(msgspec.Struct, frozen=True):
    """An action on jobs.

    `age` is the minimum number of seconds since their end, `rate` the maximum number of jobs per second.
    """

    act: BulkAction
    state: State
    wanted: JobFilter = msgspec.field(default_factory=JobFilter)
    age: float = 0.0
    limit: int | None = None
    rate: float | None = None

    @property
    def is_all(self) -> bool:
        """Whether all finished jobs of an age match, so that they need not be read."""
        return self.state in FINISHED_STATES and self.wanted == JobFilter() and self.rate is None


async def run_bulk(
    client: Client,
    partitions: Sequence[Partition],
    wanted: BulkOperation,
    on_step: Callable[[BulkStep], object] | None = None,
) -> int:
    """Apply the action; returns the number of changed jobs."""
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
    """Remove jobs without reading them; returns the number of changed jobs so far."""
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
    """The matching jobs of a partition in lists of bounded length, each with the number of jobs read."""
    wanted, queue = work.wanted, partition.settings.name
    if work.state in FINISHED_STATES:
        span = TimeSpan(wanted.after_ms, wanted.before_ms)
        if work.age > 0:
            now = await server_time(partition)
            oldest = int((now - work.age) * 1000)
            span = TimeSpan(span.after_ms, oldest if span.before_ms is None else min(oldest, span.before_ms))
        async with aclosing(oldest_first(partition, work.state, span)) as lists:
            async for letters in lists:
                yield [job for job in letters if matches(job, wanted, queue)], len(letters)
        return
    async with aclosing(scan_unfinished(partition, work.state)) as steps:
        async for met in steps:
            yield [job for job in met.jobs if matches_unfinished(job, wanted, queue)], met.looked


def matches_unfinished(job: StoredJob, wanted: JobFilter, queue: str) -> bool:
    """Whether an unfinished job of a queue matches."""
    return wanted.within(job.created_ms()) and matches(job, wanted, queue)


def matches(job: StoredJob, wanted: JobFilter, queue: str) -> bool:
    """Whether a job of a queue matches, apart from its time."""
    body = job.body()
    error = _error_in(job, body)
    return wanted.accepts(body, error, JobOrigin(job.id, queue, job.state, worker_of(job)))


def worker_of(job: StoredJob) -> str:
    """The worker that runs the job, or ran it last."""
    return (job.ending.worker if job.ending is not None else job.worker) or ""


def error_of(job: StoredJob) -> str:
    """The error of the job, or of its last attempt."""
    return _error_in(job, job.body())


def _error_in(job: StoredJob, body: ExtendedBody) -> str:
    if job.ending is not None:
        return job.ending.error or ""
    return body.history[-1].error if body.history else ""


# The actions.


async def retry(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Run finished jobs again."""
    some = [
        JobToRetry(job.id, job.position, record) for job in jobs if (record := _retry_record(job)) is not None
    ]
    if not some:
        return 0
    words = await partition.retry(new_token(), some)
    return words.count("retried")


async def remove(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Delete jobs. A job stays if it has moved meanwhile, or if a worker has it."""
    some = [(job.id, job.position) for job in jobs]
    words = await partition.remove(new_token(), some)
    return words.count("removed")


async def cancel(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Cancel jobs. Workers are asked to stop the running ones."""
    return await cancelling("cancelled")(client, partition, jobs)


def cancelling(reason: str) -> BulkAction:
    """Cancel jobs for a reason."""
    ending = append_ending(Ending(0, 0.0, "", error=cancel_reason(reason)))

    async def act(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
        words = await partition.cancel(ending, [job.id for job in jobs])
        return words.count("cancelled") + words.count("cancelling")

    return act


async def promote(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Run delayed jobs now."""
    done = 0
    for job in jobs:
        word = await partition.promote_one(new_token(), job.id)
        done += word == "promoted"
    return done


def rescheduling(due_ms: int, now_ms: int) -> BulkAction:
    """Let jobs run at this time. A job that is due then already does not count."""
    is_coming = due_ms > now_ms

    async def act(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
        done = 0
        for job in jobs:
            if job.due_ms == due_ms or not (is_coming or job.state == "delayed"):
                continue
            words = await partition.reschedule(new_token(), job.id, f"@{due_ms}")
            done += words.startswith("rescheduled")
        return done

    return act


async def count(client: Client, partition: Partition, jobs: Sequence[StoredJob]) -> int:
    """Change nothing: only count."""
    return len(jobs)


def _retry_record(job: StoredJob) -> bytes | None:
    try:
        return job.again()
    except UnreadableRecord:  # Records that another program wrote cannot be run.
        return None


class _BulkThrottle:
    """Wait so that no more than `rate` jobs per second are changed, counted from the first."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()

    async def wait(self, count: int) -> None:
        if self._rate is not None:
            await asyncio.sleep(max(0.0, self._began + count / self._rate - time.monotonic()))
