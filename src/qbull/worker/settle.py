"""Settle: write the outcomes of jobs to the server.

Outcomes leave in batches, one call at a time for each partition. While a call is in flight, the next batch
gathers. A write that fails is repeated while the worker lives. If the server refuses an outcome as stale, it
is dropped on purpose: the job was reclaimed and belongs to another worker now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec

from qbull.core.record import KEEPS_LANE_FLAG
from qbull.store.confirm import ConfirmedServer
from qbull.store.delivery import DeliveredJob, Delivery
from qbull.store.verbs.confirmed_order import settle_confirmed
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import Partition
from qbull.worker.outage import Outage

log = logging.getLogger("qbull.worker")

MAX_BATCH_OUTCOMES = 1000
"""Outcomes in one call. Each call waits for the disk once, and drops at most as many expired jobs."""
QUICK_JOB_SECONDS = 0.002
"""The outcome of a job that took longer is written before the next job of its lane starts."""
MAX_SETTLE_LAG_SECONDS = 0.025
"""How far quick jobs may run ahead of the call that is in flight."""


class OutcomeBatch(msgspec.Struct):
    outcomes: PartitionOutcomes = msgspec.field(default_factory=PartitionOutcomes)
    ended: list[Delivery] = msgspec.field(default_factory=list)
    written: asyncio.Future[list[bytes]] | None = None
    """Resolves with the ids that were refused, if somebody waits for it."""
    then: list[tuple[bytes, Callable[[bool], None]]] = msgspec.field(default_factory=list)
    """Jobs whose outcomes must be confirmed, and a callback for each."""


class Settler:
    """For one partition. Its methods return whether the delivery ends with the outcome.

    `settled` receives the deliveries that have ended: `HeldDeliveries.drop`. `confirmed` is the server that
    confirms outcomes, in a queue whose order is confirmed.
    """

    def __init__(
        self,
        partition: Partition,
        outage: Outage,
        settled: Callable[..., None],
        confirmed: ConfirmedServer | None = None,
    ) -> None:
        self._partition = partition
        # Without replicas, an outcome is as safe as it will be when the server has answered.
        self._confirmed = confirmed if confirmed is not None and confirmed.waits else None
        self._outage = outage
        self._settled = settled
        self._ordered = partition.settings.order is not None
        self._halts = partition.settings.on_failed == "halt"
        self._waiting: deque[OutcomeBatch] = deque()
        self._sending: asyncio.Task[None] | None = None
        # When the present call was sent.
        self._sent = 0.0

    def done(self, delivered: DeliveredJob, ending: bytes, *, give_way: bool = False) -> bool:
        """Record a completed job. `give_way` releases the rest of its train, so that other lanes run."""
        delivery = delivered.delivery
        waiting = self._waiting
        if waiting and self._sending is not None and waiting[-1].outcomes.count < MAX_BATCH_OUTCOMES:
            batch = waiting[-1]  # As a rule. It saves a call for each job.
        else:
            batch = self._batch()
        if not delivery.lane:
            batch.outcomes.done(delivery.level, delivery.entry, delivered.id, delivered.record + ending)
            batch.ended.append(delivery)
            return True
        outcomes, is_last = batch.outcomes, 2 * delivered.number + 2 == len(delivery.fields)
        if not outcomes.done_next(delivery.position, delivered.id, delivered.record + ending, is_last):
            outcomes.done_in_train(delivered.position, delivered.id, delivered.record, ending)
        if is_last or (give_way and outcomes.yield_train(delivery.position)):
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
        return self._waits(batch, delivered, leaves_slot=milliseconds > 0)

    def postpone(self, delivered: DeliveredJob, milliseconds: int) -> bool:
        """Put off a job that was not started."""
        batch = self._batch()
        batch.outcomes.postpone(delivered.position, delivered.id, delivered.record, milliseconds)
        # The rest of a train waits with it.
        batch.ended.append(delivered.delivery)
        return True

    def suspend(self, delivered: DeliveredJob, record: bytes, until: str, *, hold_lane: bool) -> bool:
        """Let a durable job sleep or wait (`Suspended.until`), with this record."""
        position = delivered.position
        batch = self._batch()
        batch.outcomes.suspend(position, delivered.id, record, until, hold_lane=hold_lane)
        if hold_lane:
            return self._waits(batch, delivered, leaves_slot=True)
        # The rest of a train passes it.
        if position.last:
            batch.ended.append(delivered.delivery)
        return position.last

    def start_anew(self, delivered: DeliveredJob, record: bytes) -> bool:
        """Let a durable job run again in its place, with this record and an empty history."""
        batch = self._batch()
        batch.outcomes.start_anew(delivered.position, delivered.id, record)
        return self._waits(batch, delivered, leaves_slot=False)

    def park(self, delivered: DeliveredJob, need: str) -> bool:
        """Let a job wait for a worker whose code can run it."""
        batch = self._batch()
        batch.outcomes.park(delivered.position, delivered.id, delivered.record, need)
        return self._waits(batch, delivered, leaves_slot=True)

    def _waits(self, batch: OutcomeBatch, delivered: DeliveredJob, *, leaves_slot: bool) -> bool:
        """A job of a train waits: the rest waits with it, unless it leaves its slot to them (settle.lua)."""
        goes_on = leaves_slot and not self._ordered and not delivered.record[2] & KEEPS_LANE_FLAG
        if goes_on and not delivered.position.last:
            return False
        batch.ended.append(delivered.delivery)
        return True

    def is_behind(self, began: float, now: float) -> bool:
        """Whether the last outcome, of a job that started at `began`, must be written before the next job
        starts.
        """
        return now - began > QUICK_JOB_SECONDS or now - self._sent > MAX_SETTLE_LAG_SECONDS

    async def written(self) -> list[bytes]:
        """Wait until the last outcome is written or refused. Returns the refused ids of its batch."""
        return await asyncio.shield(self.last_written())

    def last_written(self) -> asyncio.Future[list[bytes]]:
        """Done when the last outcome is written or refused, with the refused ids of its batch."""
        batch = self._waiting[-1]
        if batch.written is None:
            batch.written = asyncio.get_running_loop().create_future()
        return batch.written

    def confirm(self, delivered: DeliveredJob, then: Callable[[bool], None]) -> None:
        """Call `then` when the last outcome, of this job, is written: with True if it is confirmed."""
        self._waiting[-1].then.append((delivered.id, then))

    async def flush(self) -> None:
        """Wait until all outcomes are written."""
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

                async def call(batch: OutcomeBatch = batch) -> tuple[list[bytes], bool]:
                    nonlocal tries
                    tries += 1
                    if batch.then and self._confirmed is not None:
                        return await settle_confirmed(self._partition, self._confirmed, batch.outcomes)
                    return await self._partition.settle(batch.outcomes), True

                self._sent = time.perf_counter()
                stale, is_confirmed = await self._outage.retry_until_up(call)
                if stale and tries == 1:
                    self._log_stale(stale)
                if batch.written is not None:
                    batch.written.set_result(stale)
                if batch.ended:
                    self._settled(*batch.ended)
                for id, then in batch.then:
                    then(is_confirmed and id not in stale)
        finally:
            self._sending = None

    def _log_stale(self, refused: list[bytes]) -> None:
        for id in refused:
            log.warning(
                'queue "%s": job %s was reclaimed by another worker; the outcome of this run was refused',
                self._partition.settings.name,
                id.decode("utf-8", "replace"),
            )
