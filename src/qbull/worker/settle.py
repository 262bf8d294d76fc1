"""Settle: write down what became of each delivery.

The runner hands outcomes over; they leave in batches, one call at a time for each partition, and while one is
in flight the next ones gather. A write that fails is tried again while the worker lives. One that answers
"stale" is dropped on purpose: the job was reclaimed and belongs to another worker now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from qbull.store.delivery import DeliveredJob, Delivery
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import Partition
from qbull.worker.outage import Outage

log = logging.getLogger("qbull.worker")

MAX_BATCH_OUTCOMES = 1000
"""Outcomes in one call, and no more than the script drops of what is kept too long: each call waits for the disk once."""
QUICK_JOB_SECONDS = 0.002
"""Seconds. The outcome of a job that took longer is written down before the next job of its lane begins."""
MAX_SETTLE_LAG_SECONDS = 0.025
"""Seconds. Quicker ones run ahead of the call that is on its way, but not further than this."""


@dataclass(slots=True)
class OutcomeBatch:
    outcomes: PartitionOutcomes = field(default_factory=PartitionOutcomes)
    ended: list[Delivery] = field(default_factory=list)
    written: asyncio.Future[list[bytes]] | None = None
    """For those who wait: the ids that were refused."""


class Settler:
    """For one partition. Each outcome answers whether the delivery ends with it; `settled` is told when it has ended."""

    def __init__(self, partition: Partition, outage: Outage, settled: Callable[[Delivery], None]) -> None:
        self._partition = partition
        self._outage = outage
        self._settled = settled
        self._halts = partition.settings.on_failed == "halt"
        self._waiting: deque[OutcomeBatch] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._sent = 0.0  # when the present call left

    def done(self, delivered: DeliveredJob, ending: bytes, *, give_way: bool = False) -> bool:
        """Record a completed job. With `give_way` the rest of its train goes back, so that other lanes have their turn."""
        delivery = delivered.delivery
        batch = self._batch()
        if not delivery.lane:
            batch.outcomes.done(delivery.level, delivery.entry, delivered.id, delivered.record + ending)
            batch.ended.append(delivery)
            return True
        position = delivered.position
        batch.outcomes.done_in_train(position, delivered.id, delivered.record, ending)
        if position.last or (give_way and batch.outcomes.yield_train(delivery.position)):
            batch.ended.append(delivery)
            return True
        return False

    def dead(self, delivered: DeliveredJob, ending: bytes) -> bool:
        """Record a job that has failed permanently."""
        position = delivered.position
        batch = self._batch()
        batch.outcomes.dead(position, delivered.id, delivered.record, ending)
        # The rest of a train stays behind a dead letter that halts its lane.
        if position.last or self._halts:
            batch.ended.append(delivered.delivery)
            return True
        return False

    def cancelled(self, delivered: DeliveredJob, ending: bytes) -> bool:
        """Record a cancelled job."""
        position = delivered.position
        batch = self._batch()
        batch.outcomes.cancelled(position, delivered.id, delivered.record, ending)
        if position.last:
            batch.ended.append(delivered.delivery)
        return position.last

    def delay(self, delivered: DeliveredJob, record: bytes, milliseconds: int) -> bool:
        """Record a failed attempt: the job runs again after the delay, with this record."""
        batch = self._batch()
        batch.outcomes.delay(delivered.position, delivered.id, record, milliseconds)
        # The rest of a train waits with it.
        batch.ended.append(delivered.delivery)
        return True

    def postpone(self, delivered: DeliveredJob, milliseconds: int) -> bool:
        """Put off a job that was not started."""
        batch = self._batch()
        batch.outcomes.postpone(delivered.position, delivered.id, delivered.record, milliseconds)
        # The rest of a train waits with it.
        batch.ended.append(delivered.delivery)
        return True

    def is_behind(self, began: float, now: float) -> bool:
        """Whether what was handed over last, of a job that began then, is to be written down before the next one begins."""
        return now - began > QUICK_JOB_SECONDS or now - self._sent > MAX_SETTLE_LAG_SECONDS

    async def written(self) -> list[bytes]:
        """Wait until what was handed over last is written down, or refused: gives the ids of what was refused with it."""
        batch = self._waiting[-1]
        if batch.written is None:
            batch.written = asyncio.get_running_loop().create_future()
        return await asyncio.shield(batch.written)

    async def flush(self) -> None:
        """Wait until everything that was handed over is written down."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    def _batch(self) -> OutcomeBatch:
        if not self._waiting or self._waiting[-1].outcomes.count >= MAX_BATCH_OUTCOMES:
            self._waiting.append(OutcomeBatch())
        if self._sending is None:
            self._sent = time.perf_counter()
            self._sending = asyncio.get_running_loop().create_task(self._send())
        return self._waiting[-1]

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting.popleft()
                tries = 0

                async def call(outcomes: PartitionOutcomes = batch.outcomes) -> list[bytes]:
                    nonlocal tries
                    tries += 1
                    return await self._partition.settle(outcomes)

                self._sent = time.perf_counter()
                stale = await self._outage.retry_until_up(call)
                if stale and tries == 1:
                    self._log_stale(stale)
                if batch.written is not None:
                    batch.written.set_result(stale)
                for delivery in batch.ended:
                    self._settled(delivery)
        finally:
            self._sending = None

    def _log_stale(self, refused: list[bytes]) -> None:
        for id in refused:
            log.warning(
                'queue "%s": job %s was taken over by another worker meanwhile; this outcome was refused',
                self._partition.settings.name,
                id.decode("utf-8", "replace"),
            )
