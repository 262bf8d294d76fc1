"""Parked jobs: what they need, how many there are, and whether a live worker can run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from qbull.config import QueueSettings
from qbull.core.parking import CodeNeed
from qbull.core.record import to_datetime
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition

MAX_NEEDS_PER_PARTITION = 100
"""Different needs that are read of one partition."""


@dataclass(frozen=True, slots=True)
class ParkedTask:
    """Jobs of a task that wait for a worker whose code can run them.

    Args:
        queue: The name of the queue.
        task: The name of the task.
        jobs: How many jobs wait.
        since: When the oldest of them was parked.
        job: The id of that job.
        known: Whether a live worker of the queue knows the task. If one does, it takes the jobs in the next
            moments, or their arguments do not fit its code.
    """

    queue: str
    task: str
    jobs: int
    since: datetime
    job: str
    known: bool


@idempotent
async def parked_tasks(store: Store, settings: QueueSettings) -> list[ParkedTask]:
    """The tasks of a queue that have parked jobs, the one with the oldest job first.

    Health checks, the doctor and alerts report those with `known=False`: no live worker knows the task, and
    its jobs wait until somebody deploys it. The others are on their way to a worker during a rolling deploy;
    report them if they have waited for minutes.

    It costs one small call for each partition, in one round trip for each node, and one for the registry if
    there are parked jobs. At most 100 different needs are read of a partition.
    """
    partitions = await store.partitions(settings)
    found: dict[str, ParkedTask] = {}
    for reply in await _reports(partitions):
        for packed, jobs, job, since in zip(*(reply[at::4] for at in range(4)), strict=True):
            task, at = CodeNeed.unpack(packed.decode()).task, to_datetime(int(float(since)))
            one = found.get(task) or ParkedTask(settings.name, task, 0, at, job.decode(), known=False)
            oldest, of = min((one.since, one.job), (at, job.decode()))
            found[task] = ParkedTask(settings.name, task, one.jobs + jobs, oldest, of, known=False)
    if not found:
        return []
    known = await known_tasks(store, settings.name)
    tasks = [
        ParkedTask(one.queue, one.task, one.jobs, one.since, one.job, one.task in known)
        for one in found.values()
    ]
    return sorted(tasks, key=lambda one: one.since)


async def known_tasks(store: Store, queue: str) -> set[str]:
    """The tasks that the live workers of a queue know."""
    served = [member.queues.get(queue) for member in (await store.workers()).values()]
    return {
        task for serving in served if serving is not None and not serving.leaving for task in serving.tasks
    }


@idempotent
async def parked_since(partition: Partition, id: str, task: str) -> datetime | None:
    """When a job of a task was parked; None if it is not."""
    for packed in await partition.server.call("SMEMBERS", partition.base + "parked"):
        if CodeNeed.unpack(packed.decode()).task == task:
            name = f"{partition.base}parked:".encode() + packed
            since = await partition.server.call("ZSCORE", name, id)
            if since is not None:
                return to_datetime(int(float(since)))
    return None


async def read_needs(partitions: Sequence[Partition]) -> list[dict[CodeNeed, float]]:
    """The needs of the parked jobs of each partition, and since when the oldest job of each is parked.

    Times are the server's, in seconds since the epoch.
    """
    return [
        {
            CodeNeed.unpack(packed.decode()): float(since_ms) / 1000
            for packed, since_ms in zip(reply[::4], reply[3::4], strict=True)
        }
        for reply in await _reports(partitions)
    ]


async def _reports(partitions: Sequence[Partition]) -> list[list[bytes]]:
    if not partitions:
        return []
    calls = [(partition.base, MAX_NEEDS_PER_PARTITION) for partition in partitions]
    return await run_scripts(partitions[0].server, "parked_report", calls)
