"""Hung functions: plain functions that run on after their timeout.

Nothing can interrupt a thread. The slot goes on with a fresh thread, and the process is replaced: a
successor takes over, running jobs end here, and the process ends with its hung threads. A worker inside
another program cannot end the program, so the thread stays.

The attempt has failed when its timeout has passed, and that is recorded once. If order or `max_active`
depends on it, it is recorded only when the function is really over: when it returns, or when its process is
gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from qbull.core.record import lane_of
from qbull.store.delivery import DeliveredJob
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.current import RunningJob
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.limiter import Limiter
from qbull.worker.process.channel import TimedOutJob
from qbull.worker.settle import Settler
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

HUNG_FUNCTION_SECONDS = 1.0
"""A function that has not returned so long after its timeout has hung: its process is replaced."""
HUNG_POLL_SECONDS = 0.05


class TimeoutOutcome(NamedTuple):
    """The outcome of a timed-out job, as a settler takes it; it stands in for one until the function is
    over.
    """

    delivered: DeliveredJob
    record: bytes = b""
    delay_ms: int | None = None
    ending: bytes = b""

    def settle(self, settler: Settler) -> bool:
        """Record it. Returns whether the delivery ends with it."""
        if self.delay_ms is None:
            return settler.dead(self.delivered, self.ending)
        return settler.delay(self.delivered, self.record, self.delay_ms)

    def message(self, queue: str) -> TimedOutJob:
        """For the supervisor."""
        delivered, position = self.delivered, self.delivered.position
        return TimedOutJob(
            queue=queue,
            partition=delivered.delivery.partition.number,
            delivery=position.delivery,
            lane=position.lane,
            number=position.number,
            last=position.last,
            id=delivered.id,
            record=delivered.record if self.delay_ms is None else self.record,
            delay_ms=self.delay_ms,
            ending=self.ending,
        )


class OutcomeHolder:
    """Takes the outcome of a timed-out job in place of a settler, and keeps it."""

    def __init__(self) -> None:
        self.outcome: TimeoutOutcome | None = None

    def delay(self, delivered: DeliveredJob, record: bytes, milliseconds: int) -> bool:
        """Keep a failed attempt."""
        self.outcome = TimeoutOutcome(delivered, record, milliseconds)
        return True

    def dead(self, delivered: DeliveredJob, ending: bytes) -> bool:
        """Keep a job that has failed permanently."""
        self.outcome = TimeoutOutcome(delivered, ending=ending)
        return True


class HungFunction:
    """A function that runs on. Its outcome is None if it is recorded already."""

    def __init__(self, job: RunningJob, outcome: TimeoutOutcome | None) -> None:
        self.job = job
        self.outcome = outcome
        self.since = asyncio.get_running_loop().time()
        self.reported = False


class HungFunctions:
    """Of one queue.

    Args:
        wiring: The link to the supervisor, if there is one.
        queue: The name of the queue.
        deliveries: Has the settlers.
        limiter: Says whether the queue limits its running jobs.
    """

    def __init__(
        self, wiring: WorkerWiring, queue: str, deliveries: HeldDeliveries, limiter: Limiter
    ) -> None:
        self._link = wiring.link
        self._queue = queue
        self._deliveries = deliveries
        self._limiter = limiter
        self._running: list[HungFunction] = []
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The number of functions that run on."""
        return len(self._running)

    def add(self, job: RunningJob, delivered: DeliveredJob, fail: Callable[..., bool]) -> bool:
        """The function of a job runs on after its timeout. Returns whether its delivery ends here.

        Args:
            job: The job.
            delivered: The job in its delivery.
            fail: Records the failed attempt, or gives it to the settler that is passed.
        """
        if lane_of(delivered.record) or self._limiter.has_max_active:
            holder = OutcomeHolder()
            fail(settler=holder)
            hung, ends = HungFunction(job, holder.outcome), True
            if self._link is not None and holder.outcome is not None:
                self._link.channel.send(holder.outcome.message(self._queue))
        else:
            hung, ends = HungFunction(job, None), fail()
        self.watch(hung)
        return ends

    def watch(self, hung: HungFunction) -> None:
        """Wait for the end of a function, in the background."""
        self._running.append(hung)
        self._changed.set()
        if self._watching is None:
            self._watching = start_actor(self._watch)

    async def room(self, most: int) -> None:
        """Wait until at most `most` functions run on: each of them occupies a thread."""
        while len(self._running) > most:
            self._changed.clear()
            await self._changed.wait()

    def held(self) -> list[DeliveredJob]:
        """The jobs whose outcomes wait for the end of their functions."""
        return [hung.outcome.delivered for hung in self._running if hung.outcome is not None]

    async def over(self) -> None:
        """Wait until no outcome waits for the end of its function."""
        while self.held():
            self._changed.clear()
            await self._changed.wait()

    async def leave(self) -> None:
        """The worker stops: nobody else gets the jobs of these functions before the functions are over."""
        for delivered in self.held():
            delivery = delivered.delivery
            self._deliveries.buffer.abandon(delivery.partition.number, delivery.position)
        if self._link is None:
            await self.over()

    async def close(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            await stop_actors([self._watching])

    async def _watch(self) -> None:
        while True:
            if not self._running:
                self._changed.clear()
                await self._changed.wait()
            await asyncio.sleep(HUNG_POLL_SECONDS)
            now = asyncio.get_running_loop().time()
            for hung in list(self._running):
                if not hung.job.in_thread:
                    self._ended(hung)
                elif not hung.reported and now - hung.since >= HUNG_FUNCTION_SECONDS:
                    self._report(hung)

    def _ended(self, hung: HungFunction) -> None:
        self._running.remove(hung)
        outcome = hung.outcome
        if outcome is not None:
            delivery = outcome.delivered.delivery
            if not outcome.settle(self._deliveries.settlers[delivery.partition.number]):
                self._deliveries.release_rest(delivery)
        self._changed.set()

    def _report(self, hung: HungFunction) -> None:
        hung.reported = True
        job = hung.job
        text = f'queue "{self._queue}": job {job.id.decode("utf-8", "replace")} ({job.body.task}) timed out'
        if self._link is not None:
            self._link.ask_for_successor(f"{text} and its function does not return")
        else:
            log.warning("%s; its function does not return and keeps a thread", text)
