"""Parking: jobs that this worker cannot run wait for a worker that can.

In a rolling deploy two versions of the code serve a queue. A worker parks a job if it does not know the task,
if the arguments do not fit, or if it lacks the labels or resources of the task. A parked job has used no
attempt and costs nothing until a worker takes it that meets its need (unpark.py). It keeps its place in an
ordered lane; in a lane without an order it leaves its slot to others. If no live worker has code that fits
the arguments, the job fails after some seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from qbull.core.outcome import Undeliverable
from qbull.core.parking import CodeNeed, TaskSignatures
from qbull.store.delivery import DeliveredJob
from qbull.worker.assignment import Assignment
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.prefetch import delivery_key
from qbull.worker.resource_jobs import ResourceJobs
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

LIVE_CODE_SECONDS = 1.0
"""Seconds for which the code of the live workers counts as known."""


class CodeMismatch(Exception):
    """This worker's code cannot run a job: it lacks the task, or `error` says which argument does not fit."""

    def __init__(self, need: CodeNeed, error: str) -> None:
        super().__init__(error)
        self.need = need


class ParkedJobs:
    """For one queue: parks jobs, and remembers which code has refused the jobs that it has taken."""

    def __init__(self, wiring: WorkerWiring, assignment: Assignment, deliveries: HeldDeliveries) -> None:
        self._store = wiring.store
        self._outage = wiring.outage
        self._queue = assignment.settings.name
        self._settlers = deliveries.settlers
        self.code: TaskSignatures = {
            name: task.signature.digest for name, task in assignment.runnable.items()
        }
        self.resources = ResourceJobs(wiring, assignment, deliveries)
        self.refused_before: dict[tuple[int, bytes], CodeNeed] = {}
        self._live: list[TaskSignatures] = []
        self._live_until = 0.0
        self._logged: set[str] = set()

    async def park(
        self, delivered: DeliveredJob, mismatch: CodeMismatch, fail: Callable[[Undeliverable], bool]
    ) -> bool:
        """Park a job, or let it `fail`. Returns whether its delivery ends with it.

        If no live worker has other code for its task, it is parked once all the same: such a worker may be
        about to start. Workers take it again after a grace, and then it fails.
        """
        need = mismatch.need
        before = self.refused_before.get(delivery_key(delivered.delivery))
        if before is not None:
            waited = bool(need.refused) and need.refused <= before.refused
            need = replace(need, refused=need.refused | before.refused)
            if waited and need.is_hopeless(await self.live_code()):
                return fail(Undeliverable(f"{mismatch}; no live worker of the queue has code that fits"))
        if need.task not in self._logged:
            self._logged.add(need.task)
            level, can = (
                (logging.INFO, "has it")
                if need.kind == "label"
                else (logging.WARNING, "has code that can run them")
            )
            log.log(level, 'queue "%s": %s; its jobs wait for a worker that %s', self._queue, mismatch, can)
        return self._settlers[delivered.delivery.partition.number].park(delivered, need.pack())

    def park_for_tokens(self, delivered: DeliveredJob, task: str) -> bool:
        """Let a job wait for tokens of a host. Returns whether its delivery ends with it."""
        need = CodeNeed(task, kind="resource")
        return self._settlers[delivered.delivery.partition.number].park(delivered, need.pack())

    async def live_code(self) -> list[TaskSignatures]:
        """The tasks that the live workers of the queue can run."""
        if time.monotonic() > self._live_until:
            members = await self._outage.retry_until_up(self._store.workers)
            served = (member.queues.get(self._queue) for member in members.values())
            self._live = [serving.code for serving in served if serving is not None and not serving.leaving]
            self._live_until = time.monotonic() + LIVE_CODE_SECONDS
        return self._live
