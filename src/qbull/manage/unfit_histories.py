"""Unfit histories: durable jobs in flight whose recorded steps the loaded code does not ask for.

No code of the user runs, so this compares names (core/asked_steps.py). It reads a bounded number of jobs of
each queue, and of each task the histories of some of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from qbull.core.asked_steps import AskedSteps, UnaskedStep, helpers_besides
from qbull.core.reachable_code import OwnModules, ReachableCode
from qbull.core.record import UnreadableRecord, body_of, crashes_of
from qbull.core.task import TaskSpec
from qbull.store.read.inspect import StoredJob
from qbull.store.read.unfinished import scan_unfinished
from qbull.store.store import Store
from qbull.store.verbs.history import read_records
from qbull.store.verbs.partition import Partition

if TYPE_CHECKING:
    from qbull.queue import Queue

MAX_SCANNED_HISTORY_JOBS = 20_000
"""Jobs of a queue that are read to find those with a history."""
MAX_READ_HISTORIES = 100
"""Of each task."""

UnfitReason = Literal["gone", "plain", "step", "signal"]
"""The task is not declared, or not durable; or a recorded step, or the signal that the job waits for, is not
in the code."""


@dataclass(slots=True)
class UnfitJobs:
    """Jobs of a task that the loaded code may be unable to continue, for one reason.

    Attributes:
        reason: why.
        number, step: the recorded step that the code does not ask for; 0 and "" for other reasons.
        jobs: the ids of the jobs.
    """

    reason: UnfitReason
    number: int
    step: str
    jobs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TaskHistories:
    """The histories of one task that were looked at.

    Attributes:
        is_known: the code tells which steps it asks for. If not, the recorded steps were not compared.
        looked: how many jobs were looked at.
        is_complete: there are no others.
    """

    queue: str
    task: str
    is_known: bool = True
    looked: int = 0
    is_complete: bool = True
    unfit: list[UnfitJobs] = field(default_factory=list)

    def put(self, reason: UnfitReason, unasked: UnaskedStep | None, job: str) -> None:
        number, step = (0, "") if unasked is None else (unasked.record.number, unasked.record.name)
        for one in self.unfit:
            if (one.reason, one.number, one.step) == (reason, number, step):
                one.jobs.append(job)
                return
        self.unfit.append(UnfitJobs(reason, number, step, [job]))


class LoadedTasks:
    """The tasks of an app as the code in this process declares them."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._names = {name for queue in queues.values() for name in queue.tasks}
        self._modules = OwnModules()
        self._asked: dict[tuple[str, str], AskedSteps] = {}

    def task(self, queue: str, name: str) -> TaskSpec | None:
        return self._queues[queue].tasks.get(name)

    def asked(self, queue: str, name: str) -> AskedSteps:
        """The steps that a durable task can ask for."""
        if not self._asked:
            codes = {
                (queue.name, task.name): ReachableCode(self._modules, [task.function])
                for queue in self._queues.values()
                for task in queue.tasks.values()
                if task.durable
            }
            helpers = helpers_besides(codes.values(), self._modules)
            self._asked = {key: AskedSteps(code, helpers, self._names) for key, code in codes.items()}
        return self._asked[queue, name]


async def look_at_histories(store: Store, queue: Queue, tasks: LoadedTasks) -> list[TaskHistories]:
    """Compare the histories of a queue's jobs in flight with the loaded code. Running jobs are left out."""
    found, is_complete = await _started_jobs(await store.partitions(queue.settings), tasks, queue.name)
    answer = []
    for name, jobs in sorted(found.items()):
        one = TaskHistories(queue.name, name, is_complete=is_complete and len(jobs) <= MAX_READ_HISTORIES)
        for partition, job in jobs[:MAX_READ_HISTORIES]:
            await _compare(one, tasks, partition, job)
        if one.looked:
            answer.append(one)
    return answer


async def _started_jobs(
    partitions: Iterable[Partition], tasks: LoadedTasks, queue: str
) -> tuple[dict[str, list[tuple[Partition, StoredJob]]], bool]:
    """Jobs that have run before, by task, and whether these are all."""
    found: dict[str, list[tuple[Partition, StoredJob]]] = defaultdict(list)
    scanned = 0
    for partition in partitions:
        async with aclosing(scan_unfinished(partition, "queued")) as batches:
            async for batch in batches:
                for job in batch.jobs:
                    name = _task_of_started(job)
                    if name is not None and len(found[name]) <= MAX_READ_HISTORIES:
                        found[name].append((partition, job))
                scanned += batch.looked
                if scanned >= MAX_SCANNED_HISTORY_JOBS:
                    return found, False
    return found, True


def _task_of_started(job: StoredJob) -> str | None:
    try:
        body = body_of(job.record)
    except UnreadableRecord:
        return None
    has_run = body.suspended or body.history or body.forked_from or crashes_of(job.record)
    return body.task if has_run else None


async def _compare(one: TaskHistories, tasks: LoadedTasks, partition: Partition, job: StoredJob) -> None:
    records = await read_records(partition, job.id)
    if not records:
        return
    one.looked += 1
    task = tasks.task(one.queue, one.task)
    if task is None:
        one.put("gone", None, job.id)
    elif not task.durable:
        one.put("plain", None, job.id)
    else:
        asked = tasks.asked(one.queue, one.task)
        one.is_known = asked.is_known
        unasked = asked.first_unasked(records)
        if unasked is not None:
            one.put("signal" if unasked.is_open else "step", unasked, job.id)


def total_looked(histories: Sequence[TaskHistories]) -> int:
    """How many jobs were looked at."""
    return sum(one.looked for one in histories)
