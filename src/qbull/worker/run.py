"""Run: take deliveries from the hand and work through them.

Each slot runs one delivery at a time, the jobs of a train one after the other. A job is a line of steps: read it,
find its task, decode its arguments, call, conclude. Nothing that a job contains or does can end a slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from qbull.core.codec import PAYLOAD_LIMIT
from qbull.core.job import SUSPECT, Garbage, RareBody, body_of, crashes_of
from qbull.core.outcome import Undeliverable
from qbull.core.task import TaskSpec
from qbull.errors import PayloadError, ServerError
from qbull.offload import Stored
from qbull.store.live import Live
from qbull.store.partition import EXPIRY
from qbull.store.store import Delivery
from qbull.worker.assignment import Assignment
from qbull.worker.begin import Begin
from qbull.worker.board import Board
from qbull.worker.call import Caller
from qbull.worker.cancel import Marks
from qbull.worker.conclude import Conclude
from qbull.worker.current import Running, running
from qbull.worker.gate import Gate
from qbull.worker.hand import Hand
from qbull.worker.isolation import Isolation
from qbull.worker.note import Notes
from qbull.worker.settle import Settler
from qbull.worker.slot import Cancelled, Deadlines, Interrupted, Slot

log = logging.getLogger("qbull.worker")

TRAIN_TURN = 0.25
"""Seconds after which a train gives way: its rest joins the end of the line, so that a slot is not one key's for long."""
TURN = 0.002
"""Seconds after which a slot whose jobs never wait lets the event loop turn."""


class Runner:
    """The slots of one queue. `settlers` are those of its partitions, by number.

    A delivery that was asked for more than `doubt` seconds ago is looked up before it is begun.
    """

    def __init__(
        self,
        assignment: Assignment,
        hand: Hand,
        settlers: Mapping[int, Settler],
        gate: Gate,
        begin: Begin,
        notes: Notes,
        *,
        worker: str,
        isolation: Isolation,
        board: Board | None = None,
        first_slot: int = 0,
        payload_limit: int = PAYLOAD_LIMIT,
        doubt: float = 15.0,
    ) -> None:
        self.settings = settings = assignment.settings
        self._tasks = assignment.tasks
        self._hand = hand
        self._settlers = settlers
        self._notes = notes
        self._gate = gate
        self._begin = begin
        self._asks = False
        self._isolation = isolation
        self._doubt = doubt
        self._board = board
        self._first_slot = first_slot
        self._slots = [Slot(first_slot + n) for n in range(settings.concurrency)]
        self._deadlines = Deadlines(self._slots)
        self._call = Caller(settings.name, settings.concurrency, payload_limit, assignment.results)
        self._conclude = Conclude(settings, worker)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._woken = 0
        self._marks: Marks = {}
        self._context = contextvars.copy_context()
        self._stopping = False
        self._still = False
        self._surplus = 0  # slots that are to end
        self._braked = False  # one of the three
        self._turned = 0.0
        self._room: Callable[[], None] = lambda: None
        self._unfinished: Callable[[Delivery], None] = lambda delivery: None

    def start(
        self,
        room: Callable[[], None],
        unfinished: Callable[[Delivery], None],
        hold: Callable[[float, str], None],
    ) -> None:
        """`room` is called when more can be fetched, `unfinished` with what is to be given back, `hold` where a task
        asks for a rest of the whole queue."""
        self._room = room
        self._unfinished = unfinished
        self._conclude.hold = hold
        for slot in self._slots:
            self._open(slot)

    def hold(self) -> None:
        """Begin nothing more, until it is said again what is in force."""
        self._still = True
        self._brake()

    def follow(self, live: Live) -> None:
        """What is in force: how often a job is tried, how many slots there are, whether anything may begin."""
        self._conclude.retry = live.settings.retry if "retry" in live.changed else None
        self._resize(live.settings.concurrency)
        self._asks = self._begin.rate is not None or self._gate.metered
        self._still = live.still
        self._brake()
        self.arrived()

    def running(self) -> list[Running]:
        """The jobs whose tasks run now."""
        return [slot.job for slot in self._slots if slot.job is not None]

    def free_slots(self) -> int:
        """Those that were woken for what is in the hand, and have not taken it yet, are still free."""
        return len(self._idle) + self._woken

    def arrived(self) -> None:
        """There is something in the hand: wake as many slots as have work."""
        if self._still:
            return
        for _ in range(min(self._hand.waiting, len(self._idle))):
            self._wake()

    def cancel(self, marks: Marks) -> None:
        """These are to stop. A plain function cannot be interrupted: it is told, and waited for."""
        self._marks = marks
        for slot in self._slots if marks else ():
            job = slot.job
            if job is None or job.partition is None or job.cancelled is not None:
                continue
            job.cancelled = marks.get((job.partition.number, job.place, job.id))
            if job.cancelled is not None:
                job.stopped = True
                if self._tasks[job.body.task].kind != "thread":
                    slot.interrupt(Cancelled(job.cancelled))

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
        self._deadlines.close()
        await self._call.close()

    def _wake(self) -> None:
        waiter = self._idle.popleft()
        if not waiter.done():
            waiter.set_result(None)
            self._woken += 1

    def _resize(self, wanted: int) -> None:
        """More slots are opened at once; fewer are left when as many jobs have ended."""
        present = len(self._slots) - self._surplus
        if wanted == present:
            return
        self._call.resize(wanted)
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
        self._brake()
        return True

    def _brake(self) -> None:
        self._braked = self._stopping or self._still or self._surplus > 0

    async def _still_running(self, within: float) -> list[Slot]:
        tasks = [slot.task for slot in self._slots if slot.task is not None and not slot.task.done()]
        if tasks and within > 0:
            await asyncio.wait(tasks, timeout=within)
        return [slot for slot in self._slots if slot.task is not None and not slot.task.done()]

    def _open(self, slot: Slot, delivery: Delivery | None = None, at: int = 0) -> None:
        work = self._work(slot, delivery, at)
        slot.task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        slot.task.add_done_callback(lambda task: self._closed(slot, task))

    def _closed(self, slot: Slot, task: asyncio.Task[None]) -> None:
        """Nothing that a job does ends its slot; should we ourselves, another one is opened."""
        if task.cancelled() or task.exception() is None:
            return
        log.error(
            'queue "%s": a slot met what it did not expect', self.settings.name, exc_info=task.exception()
        )
        if not self._stopping:
            self._open(slot)

    async def _work(self, slot: Slot, delivery: Delivery | None, at: int) -> None:
        while not self._stopping:
            if self._braked:
                if delivery is not None:
                    self._unfinished(delivery)
                    delivery, at = None, 0
                if self._has_ended(slot):
                    return
                if self._still:
                    await self._wait()
                    continue
            delivery = delivery or self._hand.take()
            if delivery is None:
                await self._wait()
                continue
            if time.monotonic() - delivery.asked > self._doubt and not await self._still_ours(delivery):
                self._hand.drop(delivery)
                delivery = None
                continue
            stopped_at = await self._run_delivery(slot, delivery, at)
            if self._is_spoilt(slot):
                # The job left something behind; the next one must not find it.
                if not self._stopping:
                    self._open(slot, delivery if stopped_at is not None else None, stopped_at or 0)
                return
            delivery, at = None, 0
            now = time.monotonic()
            if now - self._turned > TURN:
                self._room()
                await asyncio.sleep(0)
                self._turned = time.monotonic()

    async def _still_ours(self, delivery: Delivery) -> bool:
        """It was asked for long ago: this process may have been stopped meanwhile, and others have taken over."""
        try:
            return await delivery.partition.holds(delivery.fields[0], delivery.place, delivery.lane)
        except ServerError:
            return True  # it cannot be known now; settle will know

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        self._room()
        try:
            await waiter
            self._woken -= 1
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        self._turned = time.monotonic()

    async def _run_delivery(self, slot: Slot, delivery: Delivery, at: int) -> int | None:
        """Run its jobs in order. Answers where it stopped because the slot was spoilt, None where it ended."""
        last = len(delivery.fields) - 2
        slot.since = time.perf_counter()
        while True:
            ended = await self._run_job(slot, delivery, at)
            at += 2
            if ended or at > last:
                return None
            if self._braked:  # the rest of a train is given back
                if not self._stopping:
                    self._unfinished(delivery)
                return None
            if self._is_spoilt(slot):
                return at

    def _is_spoilt(self, slot: Slot) -> bool:
        """A job may leave a changed context or a cancellation behind in its slot."""
        return contextvars.copy_context() != self._context or (
            slot.task is not None and slot.task.cancelling() > 0
        )

    async def _run_job(self, slot: Slot, delivery: Delivery, at: int) -> bool:
        """One job, from its bytes to what became of it. Answers whether its delivery ends with it."""
        id, record = delivery.fields[at], delivery.fields[at + 1]
        settler = self._settlers[delivery.partition.number]
        body: RareBody | None = None
        task: TaskSpec | None = None
        job: Running | None = None
        began = time.perf_counter()
        try:
            body = _read(record)
            task = self._task(body.task)
            args, kwargs = _decode(task, body)
            job = Running(
                self.settings.name,
                delivery.partition,
                delivery.place,
                id,
                record,
                body,
                delivery.lane,
                self._notes,
            )
            if crashes_of(record) < SUSPECT:
                if self._isolation.closed:
                    await self._isolation.opened()
                if (self._asks or body.expires) and not await self._may_begin(delivery, at, job):
                    return True
                result = await self._attempt(slot, delivery.partition.number, job, task, args, kwargs)
            else:
                async with self._isolation.alone():
                    if (self._asks or body.expires) and not await self._may_begin(delivery, at, job):
                        return True
                    await delivery.partition.mark_alone(id, delivery.place)
                    result = await self._attempt(slot, delivery.partition.number, job, task, args, kwargs)
        except Interrupted:
            return True  # the worker ends before it does: the delivery is given back
        except Exception as error:
            if job is not None and job.talks:
                await self._hear_out(slot, job)
            if job is not None and job.cancelled is not None:
                return self._conclude.cancelled(settler, delivery, at, job.body, job.cancelled, began)
            return self._conclude.failed(settler, delivery, at, body, task, error, began)
        if job.talks:
            await self._hear_out(slot, job)
        if job.cancelled is not None:
            return self._conclude.cancelled(settler, delivery, at, body, job.cancelled, began)
        sealed = self._conclude.done(delivery, record, body, result, began)
        if not delivery.lane:
            return settler.done(delivery, at, sealed)
        return settler.done(delivery, at, sealed, give_way=time.perf_counter() - slot.since > TRAIN_TURN)

    async def _hear_out(self, slot: Slot, job: Running) -> None:
        """Its last words are written down before its end is; unless the worker cannot wait for that."""
        try:
            await self._notes.flush(job)
        except asyncio.CancelledError:
            if slot.absorb() is None:
                raise

    async def _may_begin(self, delivery: Delivery, at: int, job: Running) -> bool:
        """The last questions before it begins. Where it may not, it is put off, or given to whoever may begin first."""
        wait = await self._begin(delivery, job)
        if wait is None:
            job.cancelled = EXPIRY
            raise Cancelled(EXPIRY)
        if wait > 0:
            self._settlers[delivery.partition.number].later(delivery, at, math.ceil(wait * 1000))
            return False
        if self._gate.metered and not await self._gate.begin():
            self._unfinished(delivery)
            return False
        return True

    async def _attempt(
        self, slot: Slot, number: int, job: Running, task: TaskSpec, args: list[Any], kwargs: dict[str, Any]
    ) -> bytes | Stored:
        """The user's code, with its time limited and itself known while it runs."""
        if self._marks:
            self._refuse_cancelled(number, job)
        timeout = job.body.timeout if job.body.timeout is not None else task.timeout
        if timeout is not None:
            self._deadlines.limit(slot, timeout)
        if self._board is not None:
            self._board.begin(slot.number, b"%s %d %s" % (job.queue.encode(), number, job.place))
        token = running.set(job)
        slot.job = job
        self._isolation.busy += 1
        try:
            result = await self._call(task, args, kwargs, job)
        except asyncio.CancelledError as cancelled:
            job.stopped = True
            why = slot.absorb()
            if why is not None:
                raise why from None
            raise RuntimeError(f"it or something it waited for was cancelled: {cancelled}") from cancelled
        finally:
            self._isolation.left()
            running.reset(token)
            if self._board is not None:
                self._board.end(slot.number)
            slot.job = slot.deadline = None
        if slot.why is not None:
            await _late_interrupt(slot)
        return result

    def _refuse_cancelled(self, number: int, job: Running) -> None:
        """It was cancelled between being handed over and this moment: it is not begun."""
        job.cancelled = self._marks.get((number, job.place, job.id))
        if job.cancelled is not None:
            raise Cancelled(job.cancelled)

    def _task(self, name: str) -> TaskSpec:
        task = self._tasks.get(name)
        if task is None:
            known = ", ".join(sorted(self._tasks)[:10]) or "none"
            raise Undeliverable(f'no task "{name}" is registered in this worker; it knows: {known}')
        return task


def _read(record: bytes) -> RareBody:
    try:
        return body_of(record)
    except Garbage as error:
        raise Undeliverable(str(error)) from None


def _decode(task: TaskSpec, body: RareBody) -> tuple[list[Any], dict[str, Any]]:
    try:
        return task.signature.decode(body.payload)
    except PayloadError as error:
        raise Undeliverable(str(error)) from None


async def _late_interrupt(slot: Slot) -> None:
    """It was interrupted in the moment in which it finished: take the cancellation that is still to come."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        slot.absorb()
    slot.why = None
