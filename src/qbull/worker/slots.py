"""Slots: take deliveries from the prefetch buffer and run their jobs.

Each slot runs one delivery at a time, the jobs of a train in order. Nothing that a job does can end a slot.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial

from qbull.config import QueueSettings
from qbull.errors import ServerError
from qbull.store.delivery import DeliveredJob, Delivery
from qbull.store.verbs.live_settings import LiveSettings
from qbull.worker.attempt import AttemptRunner
from qbull.worker.brake import Brake
from qbull.worker.confirm import OrderConfirmer
from qbull.worker.grace_period import GracePeriod
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.slot import Interrupted, Slot
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

MAX_LOOP_HOLD_SECONDS = 0.0003
"""Seconds after which a slot whose jobs never wait yields to the event loop."""
INTERRUPT_GRACE_SECONDS = 5.0
"""Seconds in which an interrupted job has to end, in a worker inside another program."""
SUPERVISED_INTERRUPT_GRACE_SECONDS = 1.0
"""The same limit for a process that ends anyway: its supervisor kills it soon."""


class SlotRunner:
    """The slots of one queue.

    Args:
        wiring: A delivery requested more than `min_idle / 2` seconds ago is verified before it starts.
        settings: The queue, with the number of slots.
        first_slot: The number of its first slot among all slots of the worker.
        deliveries: Has the prefetch buffer, and the settlers.
        attempts: Runs single jobs.
        brake: While it is on, slots start nothing.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        settings: QueueSettings,
        first_slot: int,
        deliveries: HeldDeliveries,
        attempts: AttemptRunner,
        brake: Brake,
    ) -> None:
        self.settings = settings
        self._outage = wiring.outage
        self._max_age = wiring.min_idle / 2
        self._loop_fence = wiring.loop_fence
        self._supervised = wiring.crash_board is not None
        self._deliveries = deliveries
        self._buffer = deliveries.buffer
        self._settlers = deliveries.settlers
        self._attempts = attempts
        self._brake = brake
        self._first_slot = first_slot
        self._slots = attempts.slots
        self._slots += [Slot(first_slot + n) for n in range(settings.concurrency)]
        self._idle: deque[asyncio.Future[None]] = deque()
        self._woken = 0
        self._context = copy_context()
        self._resting: deque[asyncio.Future[None]] = deque()  # Slots that have yielded to the event loop.
        self._turn_started = 0.0
        self._confirmer: OrderConfirmer | None = None
        if deliveries.confirmed is not None:
            self._confirmer = OrderConfirmer(deliveries.confirmed, deliveries, brake, wiring, self.arrived)

    def start(self) -> None:
        """Open all slots."""
        for slot in self._slots:
            self._open(slot)

    def apply_settings(self, live: LiveSettings) -> None:
        """Apply the retry policy, the number of slots, and whether jobs may start."""
        self._attempts.apply_settings(live)
        self._resize(live.settings.concurrency)
        self._brake.held = live.still
        self._brake.update()
        self.arrived()

    def free_slots(self) -> int:
        """The number of free slots, including those that were woken and have not taken a delivery yet."""
        return len(self._idle) + self._woken

    def admit(self, deliveries: Sequence[Delivery]) -> None:
        """Deliveries were fetched: they start now, or when the order of their lanes is confirmed."""
        self._attempts.check_logging()
        (self._confirmer or self._buffer).put(deliveries)
        self.arrived()

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """Deliveries could not be released: they start here in their turn."""
        (self._confirmer or self._buffer).put_back(deliveries)
        self.arrived()

    def arrived(self) -> None:
        """The buffer has deliveries: wake a slot, which wakes the next one when it has taken its own."""
        if self._brake.held:
            return
        self._turn_started = time.perf_counter()
        if self._idle and not self._woken and self._buffer.waiting:
            self._wake()

    async def stop(self, grace_period: GracePeriod) -> None:
        """Start nothing more. Running jobs have some time to end, then they are interrupted.

        Nothing can interrupt a plain function. A process of `qbull worker` abandons its delivery, and the
        supervisor reclaims it when the process has ended. A worker inside another program waits for the
        function. In both cases no other worker gets the job before the function is over.
        """
        self._brake.stop()
        if self._confirmer is not None:
            await self._confirmer.stop()
        while self._idle:
            self._idle.popleft().cancel()
        late, grace = await self._still_running(grace_period), grace_period.seconds
        plain = [slot for slot in late if self._stop_job(slot)]
        if len(late) > len(plain):
            log.warning(
                'queue "%s": %d running jobs did not end within %g s; they are interrupted and released',
                self.settings.name,
                len(late) - len(plain),
                grace,
            )
        for slot in late:
            if slot not in plain or self._supervised:
                slot.interrupt(Interrupted())
        if plain:
            await self._leave_plain_functions(plain, grace)
        within = SUPERVISED_INTERRUPT_GRACE_SECONDS if self._supervised else INTERRUPT_GRACE_SECONDS
        for slot in await self._still_running(GracePeriod(within)):
            log.error(
                'queue "%s": a job ignored its interruption for %g s; the worker stops without it',
                self.settings.name,
                within,
            )
            self._abandon(slot)
            if slot.task is not None:
                slot.task.cancel()
        await self._attempts.hung.leave()
        await self._attempts.close()

    def _stop_job(self, slot: Slot) -> bool:
        """Tell the job of a slot that it should stop. Returns whether a plain function runs, and goes on."""
        if slot.job is None:
            return False
        slot.job.stopped = True
        if slot.job.in_thread:
            self._abandon(slot)
        return slot.job.in_thread

    def _abandon(self, slot: Slot) -> None:
        if self._supervised and slot.job is not None and slot.job.partition is not None:
            self._buffer.abandon(slot.job.partition.number, slot.job.position)

    async def _leave_plain_functions(self, slots: list[Slot], grace: float) -> None:
        log.warning(
            'queue "%s": %d plain functions did not end within %g s and cannot be interrupted; %s',
            self.settings.name,
            len(slots),
            grace,
            "the process ends, and their jobs run again" if self._supervised else "waiting for them",
        )
        tasks = [slot.task for slot in slots if slot.task is not None]
        if tasks and not self._supervised:
            await asyncio.wait(tasks)

    def time_left(self, grace: float) -> float:
        """Seconds in which the running jobs will have ended: their timeouts, or `grace` without one."""
        now = asyncio.get_running_loop().time()
        return max((slot.deadline or now + grace for slot in self._slots if slot.job), default=now) - now

    def _wake(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
                return

    def _resize(self, concurrency: int) -> None:
        """Open missing slots at once. Surplus slots close as soon as their jobs have ended."""
        brake = self._brake
        present = len(self._slots) - brake.surplus
        if concurrency == present:
            return
        self._attempts.resize(concurrency)
        brake.surplus += present - concurrency
        if brake.surplus < 0:
            used = {slot.number for slot in self._slots}
            free = (n for n in itertools.count(self._first_slot) if n not in used)
            for _ in range(-brake.surplus):
                slot = Slot(next(free))
                self._slots.append(slot)
                self._open(slot)
            brake.surplus = 0
        for _ in range(min(brake.surplus, len(self._idle))):
            self._wake()

    def _closes(self, slot: Slot) -> bool:
        """Close this slot if there are too many."""
        if self._brake.surplus <= 0:
            return False
        self._brake.surplus -= 1
        self._slots.remove(slot)
        slot.task = None
        self._brake.update()
        return True

    async def _still_running(self, grace_period: GracePeriod) -> list[Slot]:
        await grace_period.wait([slot.task for slot in self._slots if slot.task is not None])
        return [slot for slot in self._slots if slot.task is not None and not slot.task.done()]

    def _open(self, slot: Slot, delivered: DeliveredJob | None = None) -> None:
        work = self._work(slot, delivered)
        slot.task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        slot.task.add_done_callback(lambda task: self._ended(slot, task))

    def _ended(self, slot: Slot, task: asyncio.Task[None]) -> None:
        """Open the slot again if an error of qbull or a late cancellation has ended it."""
        if not task.cancelled() and task.exception() is not None:
            log.error(
                'queue "%s": unexpected error in a worker slot; the slot is opened again',
                self.settings.name,
                exc_info=task.exception(),
            )
        if slot.task is task and not self._brake.stopping:
            self._open(slot)

    async def _work(self, slot: Slot, delivered: DeliveredJob | None) -> None:
        brake = self._brake
        while not brake.stopping:
            if brake.on:
                if delivered is not None:
                    self._deliveries.release_rest(delivered.delivery)
                    delivered = None
                if self._closes(slot):
                    self.arrived()
                    return
                if brake.held:
                    await self._wait()
                    continue
            if delivered is None:
                delivery = self._buffer.take()
                if delivery is None:
                    await self._wait()
                    continue
                delivered = DeliveredJob(delivery, 0, delivery.fields[0], delivery.fields[1])
            if self._idle and not self._woken and self._buffer.waiting:
                # The next slot starts as soon as this one has to wait for something.
                self._wake()
            try:
                rest = await self._run_delivery(slot, delivered)
            except asyncio.CancelledError:
                if not brake.stopping:
                    self._deliveries.release_rest(delivered.delivery)
                raise
            if self._is_spoilt(slot):
                # The job left something behind, and the next one must not see it.
                if not brake.stopping:
                    self._open(slot, rest)
                return
            delivered = None
            if time.perf_counter() - self._turn_started > MAX_LOOP_HOLD_SECONDS:
                await self._rest()

    async def _rest(self) -> None:
        """Yield to the event loop.

        In each turn of the loop one resting slot goes on, in order. If all went on in the same turn, the
        replies of the server would wait for all of them.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._resting.append(waiter)
        if len(self._resting) == 1:
            asyncio.get_running_loop().call_soon(self._end_a_rest)
        self._buffer.made_room()
        await waiter
        self._turn_started = time.perf_counter()

    def _end_a_rest(self) -> None:
        waiter = self._resting.popleft()
        if not waiter.done():
            waiter.set_result(None)
        if self._resting:
            asyncio.get_running_loop().call_soon(self._end_a_rest)

    async def _still_ours(self, delivery: Delivery) -> bool:
        """Ask the server whether this worker still owns a delivery.

        It was requested long ago: this process may have been suspended, and others may have reclaimed its
        deliveries. If the server is unavailable, an ordered queue waits for the answer, because others may be
        further by now.
        """
        ask = partial(delivery.partition.holds, delivery.job(0).id, delivery.position, delivery.lane)
        if self.settings.order is not None:
            return await self._outage.retry_until_up(ask)
        try:
            return await ask()
        except ServerError:
            return True  # The server checks it once more when the outcome is settled.

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._buffer.made_room()
        try:
            await waiter
        except asyncio.CancelledError:
            if not self._brake.stopping:
                raise
        finally:
            if not waiter.cancelled():
                self._woken -= 1
            elif waiter in self._idle:
                self._idle.remove(waiter)

    async def _run_delivery(self, slot: Slot, delivered: DeliveredJob) -> DeliveredJob | None:
        """Run this job and those after it in its delivery, in order.

        Returns the next job if the slot was spoilt before it, None if the delivery has ended here.
        """
        delivery = delivered.delivery
        if delivery.requested_at < self._loop_fence.revoked_at:
            self._deliveries.release_rest(delivery)
            return None
        if time.monotonic() - delivery.requested_at > self._max_age and not await self._still_ours(delivery):
            self._deliveries.drop(delivery)
            return None
        if len(delivery.fields) == 2 and not delivery.lane:
            await self._attempts.run(slot, delivered)
            return None
        last, settler = delivery.job_count - 1, self._settlers[delivery.partition.number]
        started = time.perf_counter()
        slot.since = delivery.started_at or started
        while True:
            ended = await self._attempts.run(slot, delivered)
            if ended or delivered.number >= last:
                return None
            if self._confirmer is not None and delivery.lane:
                self._confirmer.ended(delivered, slot.since)
                return None
            now = time.perf_counter()
            behind = settler.is_behind(started, now)
            started = now
            if behind or now - self._turn_started > MAX_LOOP_HOLD_SECONDS:
                if not await self._may_go_on(slot, delivered, behind=behind):
                    return None
                started = time.perf_counter()
            delivered = delivery.job(delivered.number + 1)
            if self._brake.on:
                if not self._brake.stopping:
                    self._deliveries.release_rest(delivery)
                return None
            if self._is_spoilt(slot):
                return delivered

    async def _may_go_on(self, slot: Slot, delivered: DeliveredJob, *, behind: bool) -> bool:
        """Pause before the next job of a train, and return whether this worker still owns the train.

        If the settler is behind, the outcome of this job is written first: should the process die, a job that
        ended before the next one started must not run again after it. Otherwise the slot yields to the event
        loop.
        """
        delivery = delivered.delivery
        refused: list[bytes] = []
        before = time.monotonic()
        try:
            if behind:
                refused = await self._settlers[delivery.partition.number].written()
            else:
                await self._rest()
        except asyncio.CancelledError:
            if slot.take_interrupt() is None:
                raise
            # The worker stops, and releases the rest.
            return False
        doubtful = delivered.id in refused or time.monotonic() - before > self._max_age
        if not doubtful or await self._still_ours(delivery):
            return True
        self._deliveries.drop(delivery)
        return False

    def _is_spoilt(self, slot: Slot) -> bool:
        """A job may leave a changed context or a pending cancellation behind in its slot."""
        return copy_context() != self._context or (slot.task is not None and slot.task.cancelling() > 0)
