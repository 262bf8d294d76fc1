"""Limited jobs: jobs of one queue whose tasks use shared limits.

A job asks for its start right before it runs. If a limit has no room, the job is parked: it leaves its slot,
and jobs that do not use the limit go on. limited_starter.py takes parked jobs when they have their starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from qbull.core.limits import LimitShare, job_shares, limit_need
from qbull.core.record import body_of, priority_of
from qbull.core.task import TaskSpec
from qbull.errors import ConfigError
from qbull.store.delivery import DeliveredJob
from qbull.store.names import PRIORITY_LEVELS
from qbull.worker.assignment import Assignment
from qbull.worker.current import RunningJob
from qbull.worker.decode import CallArguments, CallDecoder
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.prefetch import delivery_key
from qbull.worker.shared_limits import LimitStart, SharedLimits, give_back
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

FRESH_AHEAD_MS = 20
"""Milliseconds for which a job may wait for its start in its slot. A longer wait does not take a slot."""
QUARANTINE_RETRY_SECONDS = 0.5

LimitedKey = tuple[str, str]
"""A limit and a key of it; the key is empty if all jobs share the limit."""
ParkedStart = tuple[int, bytes, bytes]
"""Partition, position and id of a job that was taken together with its starts."""


class LimitReached(Exception):
    """A limit has no room for the job."""

    def __init__(self, share: LimitShare) -> None:
        super().__init__(share.limit)
        self.share = share


class LimitedJobs:
    """For one queue: asks for the starts of its jobs, and knows for which limits jobs are parked here."""

    def __init__(self, wiring: WorkerWiring, assignment: Assignment, deliveries: HeldDeliveries) -> None:
        self.limits: SharedLimits = wiring.limits
        self.tasks = assignment.runnable
        self._queue = assignment.settings.name
        self._deliveries = deliveries
        self._decoder = CallDecoder(assignment)
        # The quarantine process reads no partition, so nobody would take the jobs that it parks.
        self._may_park = wiring.link is None or wiring.link.quarantine is None
        self._unwritten: Counter[LimitedKey] = Counter()
        self._warned: set[bytes] = set()
        self.waiting: dict[LimitedKey, asyncio.Event] = {}
        """The keys of limits for which jobs are parked. The event is set when there are more."""
        self.arrived = asyncio.Event()
        """Set when `waiting` has a new key."""
        self._starts: dict[ParkedStart, list[LimitStart]] = {}

    def shares(self, task: TaskSpec, call: CallArguments, weight: int | None) -> list[LimitShare]:
        """The shares that a job takes of its limits. `weight` is that of the call."""
        args, kwargs = call
        arguments: dict[str, Any] = {**dict(zip(task.signature.parameters, args, strict=False)), **kwargs}
        return job_shares(task.limits, arguments, weight)

    def shares_of_record(self, id: bytes, record: bytes) -> list[LimitShare] | None:
        """The same for a parked job; None if this worker's code cannot say, so that it has to be tried."""
        try:
            body = body_of(record)
            task = self.tasks[body.task]
            job = RunningJob(self._queue, b"", id, record, body)
            return self.shares(task, self._decoder.arguments(task, job), body.weight)
        except Exception:  # whatever is wrong with it becomes the outcome of its run
            return None

    async def take(
        self, delivered: DeliveredJob, job: RunningJob, task: TaskSpec, call: CallArguments, *, again: bool
    ) -> list[LimitStart]:
        """Take the starts of a job, and wait until it may start. Raises LimitReached if it has to wait.

        `again`: its turn had come, and it started too late.
        """
        delivery = delivered.delivery
        place = (*delivery_key(delivery), delivered.id)
        starts = self._starts.pop(place, None)
        if starts is None:
            starts = await self._ask(
                self.shares(task, call, job.body.weight), level_of(delivered.record), again=again
            )
        try:
            wait = max(start.grant.after for start in starts) - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
        except BaseException:
            give_back(starts)
            raise
        job.start_by = min(job.start_by, *(start.grant.latest for start in starts))
        job.spend = partial(self._spend, asyncio.get_running_loop(), starts)
        return starts

    async def _ask(self, shares: Sequence[LimitShare], level: str, *, again: bool) -> list[LimitStart]:
        while True:
            before = next((share for share in shares if (share.limit, share.key) in self.waiting), None)
            if before is not None and self._may_park and not again:
                # Others came first. This one has its place among them by its priority.
                raise LimitReached(before)
            answer = await self.limits.acquire(shares, level, FRESH_AHEAD_MS)
            if isinstance(answer, list):
                return answer
            share, refusal = answer
            if self._may_park:
                raise LimitReached(share)
            await asyncio.sleep(min(refusal.wait, QUARANTINE_RETRY_SECONDS))

    def park(self, delivered: DeliveredJob, share: LimitShare) -> bool:
        """Let a job wait for a limit. Returns whether its delivery ends with it."""
        key = share.limit, share.key
        settler = self._deliveries.settlers[delivered.delivery.partition.number]
        ends = settler.park(delivered, limit_need(*key))
        self._unwritten[key] += 1
        self.add_waiting(key)

        def written(_: object) -> None:
            self._unwritten[key] -= 1
            if key in self.waiting:
                self.waiting[key].set()

        settler.last_written().add_done_callback(written)
        return ends

    def add_waiting(self, key: LimitedKey) -> None:
        """Jobs are parked for this key."""
        if key not in self.waiting:
            self.waiting[key] = asyncio.Event()
            self.arrived.set()

    def none_left(self, key: LimitedKey) -> bool:
        """No parked job was found for this key: forget it, unless one is just being written."""
        if self._unwritten[key] > 0:
            return False
        del self._unwritten[key]
        self.waiting.pop(key, None)
        return True

    def attach(self, place: ParkedStart, starts: list[LimitStart]) -> None:
        """A parked job was taken together with its starts."""
        self._starts[place] = starts

    def drop_lost(self) -> None:
        """Give back the starts of deliveries that have left this worker without a run."""
        for place in [place for place in self._starts if not self._deliveries.buffer.holds(place[:2])]:
            give_back(self._starts.pop(place))

    def warn_too_heavy(self, id: bytes, share: LimitShare) -> None:
        """Log once that a job is heavier than its limit ever allows."""
        if id not in self._warned:
            self._warned.add(id)
            log.warning(
                'queue "%s": job %s weighs %d, more than limit "%s" allows at all; '
                'it waits until somebody raises the limit with app.limits.configure("%s", …)',
                self._queue,
                id.decode("utf-8", "replace"),
                share.weight,
                share.limit,
                share.limit,
            )

    def close(self) -> None:
        """Give back the starts of jobs that have not started."""
        for place in list(self._starts):
            give_back(self._starts.pop(place))

    @staticmethod
    def _spend(
        loop: asyncio.AbstractEventLoop, starts: Sequence[LimitStart], limit: str | None, weight: int
    ) -> None:
        chosen = [start for start in starts if limit is None or start.grant.limit == limit]
        if len(chosen) != 1:
            names = ", ".join(f'"{start.grant.limit}"' for start in starts)
            asked = "give limit=…" if limit is None else f'this task does not use limit "{limit}"'
            raise ConfigError(f"spent(…): {asked}; it uses {names}")
        loop.call_soon_threadsafe(chosen[0].correct, weight)


def level_of(record: bytes) -> str:
    """The priority level of a record, as a letter that sorts in its order."""
    return PRIORITY_LEVELS[priority_of(record)]
