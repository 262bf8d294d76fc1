"""Shared limits in a worker: one gate for each limit, for all queues of the worker.

A gate sends one call at a time. Requests that are made while it is in flight leave together with the next
one, so a worker needs few calls however many jobs start. Each call also tells the server which slots this
worker uses, and which starts weighed more or less than they were granted.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from qbull.core.limits import Limit, LimitShare
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs import shared_limits
from qbull.store.verbs.shared_limits import (
    LimitCall,
    LimitGrant,
    LimitRefusal,
    LimitRequest,
    WeightCorrection,
)
from qbull.worker.actor import BackgroundTasks
from qbull.worker.current import RunningJob
from qbull.worker.outage import Outage

HUNG_SLOT_POLL_SECONDS = 0.2
"""Seconds between two looks whether a function that outlived its timeout has returned."""
MAX_CALL_REQUESTS = 500


class LimitStart:
    """A granted start of one job, with its slot. It ends once: when the job has ended, or unused."""

    __slots__ = ("_ended", "_gate", "_weight", "grant")

    def __init__(self, gate: LimitGate, grant: LimitGrant) -> None:
        self.grant = grant
        self._gate = gate
        self._weight = grant.weight
        self._ended = False

    def correct(self, weight: int) -> None:
        """The job weighs so much in fact."""
        change, self._weight = weight - self._weight, weight
        if change:
            self._gate.correct(WeightCorrection(self.grant, change))

    def end(self) -> None:
        """The job has ended: its slot is free, its weight stays spent."""
        if not self._ended:
            self._ended = True
            self._gate.free(self.grant.key)

    def give_back(self) -> None:
        """The job did not start."""
        if not self._ended:
            self.correct(0)
            self.end()


class LimitGate:
    """One limit."""

    def __init__(self, store: Store, name: str, worker: str, outage: Outage) -> None:
        self.name = name
        self.base = store.names.limit(name)
        self._store = store
        self._worker = worker
        self._outage = outage
        self._slots: Counter[str] = Counter()
        self._requests: list[tuple[LimitRequest, asyncio.Future[LimitStart | LimitRefusal]]] = []
        self._corrections: list[WeightCorrection] = []
        self._changed = False
        self._sending: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Event] = set()

    async def ask(self, request: LimitRequest) -> LimitStart | LimitRefusal:
        """Ask for the start of one job."""
        answer: asyncio.Future[LimitStart | LimitRefusal] = asyncio.get_running_loop().create_future()
        self._requests.append((request, answer))
        self._send_soon()
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                start = answer.result()
                if isinstance(start, LimitStart):
                    start.give_back()
            raise

    def free(self, key: str) -> None:
        """A job has left its slot."""
        self._slots[key] -= 1
        self._changed = True
        self._send_soon()

    def correct(self, correction: WeightCorrection) -> None:
        """A start weighs more or less than it was granted."""
        self._corrections.append(correction)
        self._send_soon()

    def wake_up(self) -> None:
        """The limit may have room again, or other settings."""
        for waiter in self._waiters:
            waiter.set()

    def watch(self, event: asyncio.Event) -> None:
        """Set the event at each wake-up, until `unwatch`."""
        self._waiters.add(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._waiters.discard(event)

    async def flush(self) -> None:
        """Wait until the server knows everything."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def close(self) -> None:
        """Free all slots of this worker."""
        if self._sending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.flush()
        if self._sending is not None:
            self._sending.cancel()
        with suppress(ServerError):
            await shared_limits.free_slots(self._store, self.name, [self._worker])

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._requests or self._corrections or self._changed:
                # The sort is stable: of one priority level, the first request comes first.
                self._requests.sort(key=lambda one: one[0].level)
                batch, self._requests = (
                    self._requests[:MAX_CALL_REQUESTS],
                    self._requests[MAX_CALL_REQUESTS:],
                )
                corrections, self._corrections = self._corrections, []
                self._changed = False
                slots = {key: count for key, count in self._slots.items() if count > 0}
                self._slots = Counter(slots)
                requests = [request for request, _ in batch]
                call = LimitCall(secrets.token_hex(8), self._worker, slots, requests, corrections)
                send = partial(shared_limits.acquire, self._store, self.name, call)
                for (_, answer), given in zip(batch, await self._outage.retry_until_up(send), strict=True):
                    self._tell(answer, given)
        finally:
            self._sending = None

    def _tell(
        self, answer: asyncio.Future[LimitStart | LimitRefusal], given: LimitGrant | LimitRefusal
    ) -> None:
        if isinstance(given, LimitRefusal):
            if not answer.done():
                answer.set_result(given)
            return
        self._slots[given.key] += 1
        start = LimitStart(self, given)
        if answer.done():
            start.give_back()
        else:
            answer.set_result(start)


class SharedLimits:
    """All limits of a worker."""

    def __init__(self, store: Store, worker: str, outage: Outage) -> None:
        self._store = store
        self._worker = worker
        self._outage = outage
        self._gates: dict[str, LimitGate] = {}
        self._background = BackgroundTasks()

    async def declare(self, limits: Iterable[Limit]) -> None:
        """Store the values of these limits as the code declares them. May be called twice."""
        for limit in limits:
            await shared_limits.declare(self._store, limit)

    def gate(self, name: str) -> LimitGate:
        """The gate of a limit."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = LimitGate(self._store, name, self._worker, self._outage)
        return gate

    def on_wake_up(self, base: str, word: str) -> None:
        """Pass a wake-up on to the gate that it concerns; an empty base means all."""
        for gate in self._gates.values():
            if base in (gate.base, "") and word in ("room", "settings", ""):
                gate.wake_up()

    async def acquire(
        self, shares: Sequence[LimitShare], level: str, within_ms: int = -1
    ) -> list[LimitStart] | tuple[LimitShare, LimitRefusal]:
        """Ask for all limits of a job. Returns the first refusal if there is one; then it holds none."""
        starts: list[LimitStart] = []
        try:
            for share in shares:
                request = LimitRequest(share.key, share.weight, level, within_ms)
                answer = await self.gate(share.limit).ask(request)
                if isinstance(answer, LimitRefusal):
                    give_back(starts)
                    return share, answer
                starts.append(answer)
        except BaseException:
            give_back(starts)
            raise
        return starts

    def end(self, starts: Sequence[LimitStart], job: RunningJob) -> None:
        """Free the slots of a job: now, or when a function that outlived its timeout is over."""
        if job.in_thread:
            self._background.start(self._end_later(starts, job))
            return
        for start in starts:
            start.end()

    async def _end_later(self, starts: Sequence[LimitStart], job: RunningJob) -> None:
        await asyncio.sleep(HUNG_SLOT_POLL_SECONDS)
        self.end(starts, job)

    async def close(self) -> None:
        """Free everything that this worker holds."""
        await self._background.stop()
        for gate in self._gates.values():
            await gate.close()


def give_back(starts: Iterable[LimitStart]) -> None:
    """The job of these starts did not start."""
    for start in starts:
        start.give_back()
