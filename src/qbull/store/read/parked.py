"""Parked jobs: what they need, how many there are, and whether a live worker can run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from qbull.config import QueueSettings
from qbull.core.limits import limit_in_need
from qbull.core.parking import CodeNeed, NeedKind
from qbull.core.record import to_datetime
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import ServedQueue

LEVEL_STEP_MS = 10**13
"""The score of a job that waits for more than code has its priority level in front (lib/parking.lua)."""
MAX_NEEDS_PER_PARTITION = 100
"""Different needs that are read of one partition."""


class ParkedTask(msgspec.Struct, frozen=True):
    """Jobs of a task that wait for a worker that can run them.

    Args:
        queue: The name of the queue.
        task: The name of the task.
        jobs: How many jobs wait.
        since: When the oldest of them was parked.
        job: The id of that job.
        known: Whether a live worker of the queue can run the task. If one can, it takes the jobs in the next
            moments, or their arguments do not fit its code.
        demand: The labels and resources that the task asks for, if a live worker of the queue knows it.
    """

    queue: str
    task: str
    jobs: int
    since: datetime
    job: str
    known: bool
    demand: str = ""


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
            task, at = CodeNeed.unpack(packed.decode()).task, to_datetime(int(float(since)) % LEVEL_STEP_MS)
            one = found.get(task) or ParkedTask(settings.name, task, 0, at, job.decode(), known=False)
            oldest, of = min((one.since, one.job), (at, job.decode()))
            found[task] = ParkedTask(settings.name, task, one.jobs + jobs, oldest, of, known=False)
    if not found:
        return []
    served = await _serving(store, settings.name)
    known = {task for serving in served for task in serving.tasks}
    demands = demands_of(served)
    tasks = [
        replace(one, known=one.task in known, demand=demands.get(one.task, "")) for one in found.values()
    ]
    return sorted(tasks, key=lambda one: one.since)


async def _serving(store: Store, queue: str) -> list[ServedQueue]:
    """The work of the live workers for a queue."""
    served = [member.queues.get(queue) for member in (await store.workers()).values()]
    return [serving for serving in served if serving is not None and not serving.leaving]


def demands_of(served: Iterable[ServedQueue]) -> dict[str, str]:
    """The labels and resources that tasks ask for, by the code of these workers."""
    return {task: demand for serving in served for task, demand in serving.demands.items()}


class Parking(msgspec.Struct, frozen=True):
    """Since when a job is parked, and why; `limit` is the shared limit and the key that it waits for."""

    since: datetime
    limit: tuple[str, str] | None = None
    kind: NeedKind = "code"


@idempotent
async def parking_of(partition: Partition, id: str, task: str) -> Parking | None:
    """Since when a job of a task is parked, and for what; None if it is not."""
    for packed in await partition.server.call("SMEMBERS", partition.base + "parked"):
        need = CodeNeed.unpack(packed.decode())
        if need.task == task:
            since_ms = await _parked_at(partition, packed, id)
            if since_ms is not None:
                return Parking(to_datetime(since_ms), kind=need.kind)
    for packed in await partition.server.call("SMEMBERS", partition.base + "limited"):
        since_ms = await _parked_at(partition, packed, id)
        if since_ms is not None:
            return Parking(to_datetime(since_ms), limit_in_need(packed.decode()))
    return None


async def _parked_at(partition: Partition, need: bytes, id: str) -> int | None:
    score = await partition.server.call("ZSCORE", f"{partition.base}parked:".encode() + need, id)
    return None if score is None else int(float(score)) % LEVEL_STEP_MS


async def read_needs(partitions: Sequence[Partition]) -> list[dict[CodeNeed, float]]:
    """The needs of the parked jobs of each partition, and since when the oldest job of each is parked.

    Times are the server's, in seconds since the epoch.
    """
    return [
        {
            CodeNeed.unpack(packed.decode()): float(since_ms) % LEVEL_STEP_MS / 1000
            for packed, since_ms in zip(reply[::4], reply[3::4], strict=True)
        }
        for reply in await _reports(partitions)
    ]


async def _reports(partitions: Sequence[Partition]) -> list[list[bytes]]:
    if not partitions:
        return []
    calls = [(partition.base, MAX_NEEDS_PER_PARTITION) for partition in partitions]
    return await run_scripts(partitions[0].server, "parked_report", calls)
