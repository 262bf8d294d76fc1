"""Run: take deliveries from the hand and work through them.

Each slot runs one delivery at a time, the jobs of a train one after the other. What a job is and does is in attempt.py;
nothing of it can end a slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from qbull.config import QueueSettings
from qbull.errors import ServerError
from qbull.store.delivery import DeliveredJob, Delivery
from qbull.store.verbs.live_settings import LiveSettings
from qbull.worker.attempt import AttemptRunner
from qbull.worker.outage import Outage
from qbull.worker.prefetch import PrefetchBuffer
from qbull.worker.settle import Settler
from qbull.worker.slot import Interrupted, Slot

log = logging.getLogger("qbull.worker")

MAX_LOOP_HOLD_SECONDS = 0.0003
"""Seconds after which a slot whose jobs never wait lets the event loop turn."""


class SlotRunner:
    """The slots of one queue. `settlers` are those of its partitions, by number.

    A delivery that was asked for more than `doubt` seconds ago is looked up before it is begun.
    """

    def __init__(
        self,
        settings: QueueSettings,
        buffer: PrefetchBuffer,
        attempts: AttemptRunner,
        settlers: Mapping[int, Settler],
        outage: Outage,
        *,
        first_slot: int = 0,
        doubt: float = 15.0,
    ) -> None:
        self.settings = settings
        self._outage = outage
        self._buffer = buffer
        self._attempts = attempts
        self._settlers = settlers
        self._doubt = doubt
        self._first_slot = first_slot
        self._slots = attempts.slots
        self._slots += [Slot(first_slot + n) for n in range(settings.concurrency)]
        self._idle: deque[asyncio.Future[None]] = deque()
        self._woken = 0
        self._context = contextvars.copy_context()
        self._stopping = False
        self._still = False
        self._surplus = 0  # slots that are to end
        self._braked = False  # one of the three
        self._resting: deque[asyncio.Future[None]] = deque()  # slots that let the event loop turn
        self._turned = 0.0  # when this turn of it began
        self._room: Callable[[], None] = lambda: None
        self._unfinished: Callable[[Delivery], None] = lambda delivery: None
        self._drop: Callable[[Delivery], None] = buffer.drop

    def start(
        self,
        room: Callable[[], None],
        unfinished: Callable[[Delivery], None],
        drop: Callable[[Delivery], None],
        hold: Callable[[float, str], None],
    ) -> None:
        """`room` is called when more can be fetched, `unfinished` with what is to be given back, `drop` with what others
        have by now, `hold` where a task asks for a rest of the whole queue."""
        self._room = room
        self._unfinished = unfinished
        self._drop = drop
        self._attempts.start(unfinished, hold)
        for slot in self._slots:
            self._open(slot)

    def hold(self) -> None:
        """Begin nothing more, until it is said again what is in force."""
        self._still = True
        self._brake()

    def follow(self, live: LiveSettings) -> None:
        """What is in force: how often a job is tried, how many slots there are, whether anything may begin."""
        self._attempts.follow(live)
        self._resize(live.settings.concurrency)
        self._still = live.still
        self._brake()
        self.arrived()

    def free_slots(self) -> int:
        """Those that were woken for what is in the buffer, and have not taken it yet, are still free."""
        return len(self._idle) + self._woken

    def arrived(self) -> None:
        """There is something in the hand: wake a slot, which wakes the next one when it has taken its own."""
        if self._still:
            return
        self._turned = time.perf_counter()
        if self._idle and not self._woken and self._buffer.waiting:
            self._wake()

    async def stop(self, grace: float) -> None:
        """Begin nothing more; let what runs end within the grace period, then interrupt it."""
        self._stopping = self._braked = True
        while self._idle:
            self._idle.popleft().cancel()
        late = await self._still_running(grace)
        if late:
            log.warning(
                'queue "%s": %d running jobs did not end in time and are given back',
                self.settings.name,
                len(late),
            )
        for slot in late:
            slot.interrupt(Interrupted())
        for slot in await self._still_running(5.0):
            log.error('queue "%s": a job does not let itself be interrupted', self.settings.name)
            if slot.task is not None:
                slot.task.cancel()
        await self._attempts.close()

    def _wake(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken += 1
                return

    def _resize(self, wanted: int) -> None:
        """More slots are opened at once; fewer are left when as many jobs have ended."""
        present = len(self._slots) - self._surplus
        if wanted == present:
            return
        self._attempts.resize(wanted)
        self._surplus += present - wanted
        if self._surplus < 0:
            used = {slot.number for slot in self._slots}
            free = (number for number in itertools.count(self._first_slot) if number not in used)
            for _ in range(-self._surplus):
                slot = Slot(next(free))
                self._slots.append(slot)
                self._open(slot)
            self._surplus = 0
        for _ in range(min(self._surplus, len(self._idle))):
            self._wake()

    def _has_ended(self, slot: Slot) -> bool:
        if self._surplus <= 0:
            return False
        self._surplus -= 1
        self._slots.remove(slot)
        slot.task = None
        self._brake()
        return True

    def _brake(self) -> None:
        self._braked = self._stopping or self._still or self._surplus > 0

    async def _still_running(self, within: float) -> list[Slot]:
        tasks = [slot.task for slot in self._slots if slot.task is not None and not slot.task.done()]
        if tasks and within > 0:
            await asyncio.wait(tasks, timeout=within)
        return [slot for slot in self._slots if slot.task is not None and not slot.task.done()]

    def _open(self, slot: Slot, delivered: DeliveredJob | None = None) -> None:
        work = self._work(slot, delivered)
        slot.task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        slot.task.add_done_callback(lambda task: self._closed(slot, task))

    def _closed(self, slot: Slot, task: asyncio.Task[None]) -> None:
        """Nothing that a job does ends its slot; should we ourselves, or a cancellation that came late, it is opened again."""
        if not task.cancelled() and task.exception() is not None:
            log.error(
                'queue "%s": a slot met what it did not expect',
                self.settings.name,
                exc_info=task.exception(),
            )
        if slot.task is task and not self._stopping:
            self._open(slot)

    async def _work(self, slot: Slot, delivered: DeliveredJob | None) -> None:
        while not self._stopping:
            if self._braked:
                if delivered is not None:
                    self._unfinished(delivered.delivery)
                    delivered = None
                if self._has_ended(slot):
                    self.arrived()
                    return
                if self._still:
                    await self._wait()
                    continue
            if delivered is None:
                delivery = self._buffer.take()
                if delivery is None:
                    await self._wait()
                    continue
                delivered = DeliveredJob(delivery, 0)
            if self._idle and not self._woken and self._buffer.waiting:
                self._wake()  # it begins as soon as this one has to wait for something
            try:
                rest = await self._run_delivery(slot, delivered)
            except asyncio.CancelledError:
                if not self._stopping:
                    self._unfinished(delivered.delivery)
                raise
            if self._is_spoilt(slot):
                # The job left something behind; the next one must not find it.
                if not self._stopping:
                    self._open(slot, rest)
                return
            delivered = None
            if time.perf_counter() - self._turned > MAX_LOOP_HOLD_SECONDS:
                await self._rest()

    async def _rest(self) -> None:
        """Let the event loop turn. In each turn one of those that rest goes on, in their order: otherwise what the server
        has answered would wait for all of them."""
        waiter = asyncio.get_running_loop().create_future()
        self._resting.append(waiter)
        if len(self._resting) == 1:
            asyncio.get_running_loop().call_soon(self._end_a_rest)
        self._room()
        await waiter
        self._turned = time.perf_counter()

    def _end_a_rest(self) -> None:
        waiter = self._resting.popleft()
        if not waiter.done():
            waiter.set_result(None)
        if self._resting:
            asyncio.get_running_loop().call_soon(self._end_a_rest)

    async def _still_ours(self, delivery: Delivery) -> bool:
        """It was asked for long ago: this process may have been stopped meanwhile, and others have taken over.

        While the server is away this cannot be known. What has its order waits: others may be further by now.
        """
        look = partial(delivery.partition.holds, delivery.job(0).id, delivery.position, delivery.lane)
        if self.settings.order is not None:
            return await self._outage.retry_until_up(look)
        try:
            return await look()
        except ServerError:
            return True  # settle will know

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._room()
        try:
            await waiter
        except asyncio.CancelledError:
            if not self._stopping:
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
        if time.monotonic() - delivery.requested_at > self._doubt and not await self._still_ours(delivery):
            self._drop(delivery)
            return None
        last = delivery.job_count - 1
        slot.since = time.perf_counter()
        while True:
            began = time.perf_counter()
            ended = await self._attempts.run(slot, delivered)
            if ended or delivered.number >= last:
                return None
            now = time.perf_counter()
            behind = self._settlers[delivery.partition.number].is_behind(began, now)
            if (behind or now - self._turned > MAX_LOOP_HOLD_SECONDS) and not await self._may_go_on(
                slot, delivered, behind=behind
            ):
                return None
            delivered = DeliveredJob(delivery, delivered.number + 1)
            if self._braked:  # the rest of a train is given back
                if not self._stopping:
                    self._unfinished(delivery)
                return None
            if self._is_spoilt(slot):
                return delivered

    async def _may_go_on(self, slot: Slot, delivered: DeliveredJob, *, behind: bool) -> bool:
        """Let the event loop turn; or let the outcome of this job be written down: should this process die, what ended
        before the next one began is not run again after it. It may be stopped in this very moment, and others go on."""
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
            return False  # the worker ends; the rest is given back
        doubtful = delivered.id in refused or time.monotonic() - before > self._doubt
        if not doubtful or await self._still_ours(delivery):
            return True
        self._drop(delivery)
        return False

    def _is_spoilt(self, slot: Slot) -> bool:
        """A job may leave a changed context or a cancellation behind in its slot."""
        return contextvars.copy_context() != self._context or (
            slot.task is not None and slot.task.cancelling() > 0
        )
