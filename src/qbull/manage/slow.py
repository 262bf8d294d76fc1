"""Slow: which tasks take longest, and which jobs have been running longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbull.core import histograms
from qbull.core.job_info import JobInfo
from qbull.store.read import histograms as written
from qbull.store.read.inspect import server_time
from qbull.store.store import Store

if TYPE_CHECKING:
    from qbull.queue import Queue

MAX_READ_RUNNING_JOBS = 10_000
"""Running jobs that are read of each queue to find the longest."""
RUNNING_PAGE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class TaskDurations:
    """How long the runs of a task took, over all workers, since the queue exists. In milliseconds."""

    queue: str
    task: str
    runs: int
    mean_ms: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class LongRun:
    """A running job, and for how many milliseconds its worker has had it."""

    job: JobInfo
    ms: float


async def slow_tasks(store: Store, queues: Sequence[Queue], limit: int) -> list[TaskDurations]:
    """The tasks with the longest runs by their 95th percentile, the slowest first."""
    found = []
    for queue in queues:
        durations, _ = histograms.read(await written.read(store, queue.name))
        found += [
            TaskDurations(
                queue.name,
                task,
                taken.count,
                taken.sum * 1000 / taken.count,
                taken.quantile_ms(0.5),
                taken.quantile_ms(0.95),
            )
            for task, taken in durations.items()
            if taken.count
        ]
    return sorted(found, key=lambda one: (-one.p95_ms, one.queue, one.task))[:limit]


async def all_running(queues: Sequence[Queue]) -> list[JobInfo]:
    """The running jobs of these queues, up to `MAX_READ_RUNNING_JOBS` of each."""
    jobs: list[JobInfo] = []
    for queue in queues:
        for start in range(0, MAX_READ_RUNNING_JOBS, RUNNING_PAGE_SIZE):
            some = await queue.jobs("active", start, start + RUNNING_PAGE_SIZE)
            jobs += some
            if len(some) < RUNNING_PAGE_SIZE:
                break
    return jobs


async def longest_running(store: Store, queues: Sequence[Queue], limit: int) -> list[LongRun]:
    """The jobs that have been running longest, the longest first."""
    jobs = await all_running(queues)
    now = await server_time(store)
    runs = [
        LongRun(job, max(now - job.started_at.timestamp(), 0.0) * 1000)
        for job in jobs
        if job.started_at is not None
    ]
    return sorted(runs, key=lambda run: (-run.ms, run.job.id))[:limit]
