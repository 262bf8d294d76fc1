"""The limited starter: takes parked jobs of a queue when their shared limits have room for them.

Starts come first and jobs afterwards: the starter looks at the next jobs that wait for a limit, asks for
their starts, and takes exactly those that have one. A job that must wait stays parked, so it takes no slot
and no worker holds it. Only the worker that reads a partition starts its parked jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from qbull.core.limits import limit_need
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.shared_limits import LimitedHead, limited_heads, limited_keys
from qbull.worker.actor import BackgroundTasks
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.limited_jobs import LimitedJobs, LimitedKey, level_of
from qbull.worker.limiter import Limiter
from qbull.worker.polling import poll_pause
from qbull.worker.room import wait_for_room
from qbull.worker.shared_limits import LimitStart, give_back
from qbull.worker.slots import SlotRunner
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

LIMITED_POLL_SECONDS = 30.0
"""Seconds between two looks for parked jobs of limits that this worker does not know of."""
NEW_PARTITION_SECONDS = 10.0
"""Seconds for which it looks every second, because the last reader of a new partition may park jobs there."""
LOST_START_SECONDS = 1.0
"""Seconds between two looks for starts whose jobs have left this worker."""
TAKE_LEAD_SECONDS = 0.01
"""Seconds before its start at which a job is taken, for the way to its slot."""
MAX_HEADS = 100
"""Jobs of one key that are looked at together."""

GrantedHead = tuple[LimitedHead, list[LimitStart]]


class LimitedStarter:
    """For one queue.

    Args:
        wiring: The services of the worker.
        jobs: Knows for which limits jobs are parked.
        deliveries: Has the prefetch buffer and the partitions of the queue.
        limiter: Grants starts if the queue has limits of its own.
        slots: Run the jobs.
        reads: The lock under which the queue runner changes what it reads, and what it reads now.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        jobs: LimitedJobs,
        deliveries: HeldDeliveries,
        limiter: Limiter,
        slots: SlotRunner,
        reads: tuple[asyncio.Lock, Callable[[], list[int] | None]],
    ) -> None:
        self._store: Store = wiring.store
        self._worker = wiring.worker
        self._outage = wiring.outage
        self._jobs = jobs
        self._deliveries = deliveries
        self._buffer = deliveries.buffer
        self._limiter = limiter
        self._slots = slots
        self._reading, self._share = reads
        self._serving: set[LimitedKey] = set()
        self._background = BackgroundTasks()
        self._look_at = 0.0
        self._read_since = 0.0

    def wake_up(self) -> None:
        """This worker reads other partitions now, or the queue was resumed."""
        self._look_at, self._read_since = 0.0, time.monotonic()
        self._jobs.arrived.set()

    async def run(self) -> None:
        """Start to serve each key of a limit for which jobs are parked."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOST_START_SECONDS):
                        await self._jobs.arrived.wait()
                self._jobs.arrived.clear()
                self._jobs.drop_lost()
                now = time.monotonic()
                if now >= self._look_at or now < self._read_since + NEW_PARTITION_SECONDS:
                    read = len(self._share() or ())
                    self._look_at = now + poll_pause(LIMITED_POLL_SECONDS, read, up_to=16)
                    for key in await self._outage.retry_until_up(self._keys):
                        self._jobs.add_waiting(key)
                for key in self._jobs.waiting.keys() - self._serving:
                    self._serving.add(key)
                    self._background.start(self._serve(key))
        finally:
            await self._background.stop()
            self._jobs.close()

    def _partitions(self) -> list[Partition]:
        return [self._deliveries.partition(number) for number in self._share() or ()]

    async def _keys(self) -> set[LimitedKey]:
        return {key for partition in self._partitions() for key in await limited_keys(partition)}

    async def _serve(self, key: LimitedKey) -> None:
        """Start the jobs of one key, until none is parked."""
        gate, more = self._jobs.limits.gate(key[0]), self._jobs.waiting[key]
        gate.watch(more)
        try:
            while True:
                more.clear()
                pause = await self._start_some(key)
                if pause is None:
                    if self._jobs.none_left(key):
                        return
                    pause = LIMITED_POLL_SECONDS
                if pause > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await more.wait()
        except Exception:
            log.exception("unexpected error while jobs wait for limit %s", key[0])
            self._look_at = time.monotonic() + LOST_START_SECONDS
            self._jobs.waiting.pop(key, None)
        finally:
            gate.unwatch(more)
            self._serving.discard(key)

    async def _start_some(self, key: LimitedKey) -> float | None:
        """Start jobs of a key. Returns the seconds until the next try, None if none is parked."""
        room = await wait_for_room(self._slots, self._buffer, self._limiter)
        look = partial(self._heads, key, min(room, MAX_HEADS))
        heads = await self._outage.retry_until_up(look)
        if not heads:
            return None
        granted, pause = await self._ask(heads)
        self._buffer.reserved += len(granted)
        reserved = len(granted)
        try:
            while granted:
                await asyncio.sleep(max(_start_of(granted[0]) - TAKE_LEAD_SECONDS - time.monotonic(), 0))
                soon = time.monotonic() + 2 * TAKE_LEAD_SECONDS
                ready = [one for one in granted if _start_of(one) <= soon] or granted[:1]
                granted = granted[len(ready) :]
                await self._take(key, ready)
        finally:
            self._buffer.reserved -= reserved
            if reserved:
                self._buffer.made_room()
            give_back(start for _, starts in granted for start in starts)
        return pause

    async def _heads(self, key: LimitedKey, count: int) -> list[LimitedHead]:
        return await limited_heads(self._partitions(), *key, count)

    async def _ask(self, heads: Iterable[LimitedHead]) -> tuple[list[GrantedHead], float]:
        """Ask for the starts of these jobs. Returns those that have them, and the seconds to wait if none."""

        async def one(head: LimitedHead) -> tuple[list[LimitStart] | None, float]:
            shares = self._jobs.shares_of_record(head.id, head.record)
            if not shares:
                return [], 0.0  # Its run says what is wrong, or its task uses no limit any more.
            answer = await self._jobs.limits.acquire(shares, level_of(head.record))
            if isinstance(answer, list):
                return answer, 0.0
            share, refusal = answer
            if refusal.never:
                self._jobs.warn_too_heavy(head.id, share)
            return None, refusal.wait

        heads = list(heads)
        answers = await asyncio.gather(*(one(head) for head in heads))
        granted = [
            (head, starts) for head, (starts, _) in zip(heads, answers, strict=True) if starts is not None
        ]
        waits = [wait for starts, wait in answers if starts is None]
        return sorted(granted, key=_start_of), 0.0 if granted or not waits else max(min(waits), 0.001)

    async def _take(self, key: LimitedKey, granted: list[GrantedHead]) -> None:
        """Take these jobs, which have their starts."""
        left = {(head.partition.number, head.id): starts for head, starts in granted}
        try:
            async with self._reading:
                if self._share() is None:
                    return
                count = len(granted)
                limited = self._limiter.limited
                permitted = await self._limiter.acquire(count, wait_for_one=False) if limited else count
                taken = 0
                try:
                    for partition, ids in _by_partition(granted[:permitted]):
                        taken += await self._take_from(partition, key, ids, left)
                finally:
                    if limited:
                        self._limiter.fetched(permitted, taken)
                if limited and taken < permitted:
                    await self._limiter.settle_up()
        except ServerError as error:
            self._outage.failed(error, self)
            async with self._reading:
                for partition, _ in _by_partition(granted):
                    release = partial(self._deliveries.release_unknown_unparked, partition)
                    await self._outage.retry_until_up(release)
            self._outage.recovered(self)
        finally:
            give_back(start for starts in left.values() for start in starts)

    async def _take_from(
        self,
        partition: Partition,
        key: LimitedKey,
        ids: list[bytes],
        left: dict[tuple[int, bytes], list[LimitStart]],
    ) -> int:
        deliveries = await self._store.unpark(partition, self._worker, limit_need(*key), len(ids), ids=ids)
        for delivery in deliveries:
            id = delivery.fields[0]
            starts = left.pop((partition.number, id))
            if starts:
                self._jobs.attach((partition.number, delivery.position, id), starts)
        self._slots.admit(deliveries)
        return len(deliveries)


def _start_of(granted: GrantedHead) -> float:
    """When all limits of a job allow its start."""
    return max((start.grant.after for start in granted[1]), default=0.0)


def _by_partition(granted: Iterable[GrantedHead]) -> list[tuple[Partition, list[bytes]]]:
    found: dict[int, tuple[Partition, list[bytes]]] = {}
    for head, _ in granted:
        found.setdefault(head.partition.number, (head.partition, []))[1].append(head.id)
    return list(found.values())
