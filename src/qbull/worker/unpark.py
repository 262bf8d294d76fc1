"""Unpark: take parked jobs that this worker can run.

Other workers have parked them (parking.py). A wake-up names the task of a parked job, so that workers
which cannot run the task do nothing. A worker also looks when it starts, and every half minute. With `auto`
sharing workers take parked jobs of all partitions, else only of those that they read.

Each round takes some jobs of every need, so that no task waits for all jobs of another one. If a task holds
resources, its tokens come first and its jobs afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container
from contextlib import suppress
from functools import partial

from qbull.core.parking import ABSENCE_GRACE_SECONDS, MISFIT_GRACE_SECONDS, CodeNeed
from qbull.errors import ServerError
from qbull.store.delivery import Delivery
from qbull.store.read.inspect import server_time
from qbull.store.read.parked import read_needs
from qbull.store.verbs.partition import Partition
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.limiter import Limiter
from qbull.worker.parking import ParkedJobs
from qbull.worker.polling import poll_pause
from qbull.worker.prefetch import delivery_key
from qbull.worker.resource_jobs import TOKEN_POLL_SECONDS
from qbull.worker.room import wait_for_room
from qbull.worker.slots import SlotRunner
from qbull.worker.wiring import WorkerWiring

PARKED_POLL_SECONDS = 30.0
"""Seconds between two looks for parked jobs without a wake-up, in a queue of up to 16 partitions."""
HOPELESS_POLL_SECONDS = 1.0
"""Seconds between two looks for jobs that no live worker can run and whose grace passes."""
LOOK_SPACING_SECONDS = 0.02
"""Seconds between two looks at least: many jobs may be parked one after the other."""
LIMIT_RETRY_SECONDS = 0.2
"""Seconds until the next try if the limits of the queue let no job start."""


class HopelessNeeds:
    """The needs that no live worker meets, and for how long this worker has seen that.

    A worker that has just started knows nothing of the time before. So a job that was parked long ago gets
    the whole grace, for example if all workers of its code are restarted.
    """

    def __init__(self) -> None:
        self._met: set[CodeNeed] = set()
        self._since: dict[CodeNeed, float] = {}

    def met(self, need: CodeNeed) -> None:
        """A live worker has code that meets this need."""
        self._met.add(need)
        self._since.pop(need, None)

    def grace_left(self, need: CodeNeed) -> float:
        """No live worker meets this need. Returns the seconds until its jobs fail.

        If a worker with such code was alive a moment ago, the arguments are no mistake of the caller. Then
        the jobs wait longer, for that code to come back.
        """
        grace = ABSENCE_GRACE_SECONDS if need in self._met else MISFIT_GRACE_SECONDS
        return self._since.setdefault(need, time.monotonic()) + grace - time.monotonic()

    def forget_all_but(self, needs: Container[CodeNeed]) -> None:
        """Only these needs are left."""
        self._met = {need for need in self._met if need in needs}
        self._since = {need: since for need, since in self._since.items() if need in needs}


class Unparker:
    """For one queue: takes parked jobs that this worker can run, as soon as it has a free slot.

    Args:
        wiring: The services of the worker.
        parked: Knows the code of this worker.
        deliveries: Has the prefetch buffer and the partitions of the queue.
        limiter: Grants starts if the queue has limits.
        slots: Run the jobs.
        reads: The lock under which the queue runner changes what it reads, and whether it reads at all now.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        parked: ParkedJobs,
        deliveries: HeldDeliveries,
        limiter: Limiter,
        slots: SlotRunner,
        reads: tuple[asyncio.Lock, Callable[[], list[int] | None]],
    ) -> None:
        self._store = wiring.store
        self._worker = wiring.worker
        self._outage = wiring.outage
        self._takes_all = wiring.sharing.mode == "auto"
        self._parked = parked
        self._resources = parked.resources
        self._deliveries = deliveries
        self._buffer = deliveries.buffer
        self._limiter = limiter
        self._slots = slots
        self._reading, self._share = reads
        self._wake_up = asyncio.Event()
        self._hopeless = HopelessNeeds()

    def wake_up(self) -> None:
        """A job of a task that this worker knows was parked, or this worker reads other partitions now."""
        self._wake_up.set()

    async def run(self) -> None:
        while True:
            self._wake_up.clear()
            partitions = await self._outage.retry_until_up(self._partitions)
            looks = await self._outage.retry_until_up(partial(read_needs, partitions))
            pause = poll_pause(PARKED_POLL_SECONDS, len(partitions), up_to=16)
            self._hopeless.forget_all_but({need for needs in looks for need in needs})
            starving: set[str] = set()
            for partition, needs in zip(partitions, looks, strict=True):
                for need, since in needs.items():
                    number = partition.number
                    if need.is_met_by(self._parked.code):
                        if self._resources.uses(need.task) and not self._resources.can_start(need.task):
                            starving.add(need.task)
                        elif await self._take(self._deliveries.partition(number), need):
                            pause = 0.0
                    elif await self._is_hopeless_here(need):
                        pause = min(pause, await self._fail_after_grace(number, need, since))
            self._resources.waiting = starving
            if pause > 0:
                await self._rest(pause, starving)
                await asyncio.sleep(LOOK_SPACING_SECONDS)

    async def _rest(self, seconds: float, starving: set[str]) -> None:
        """Wait for a wake-up, or until one of these tasks can have its tokens."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(TimeoutError):
                polls = starving or self._resources.has_reserved
                async with asyncio.timeout(min(left, TOKEN_POLL_SECONDS) if polls else left):
                    await self._wake_up.wait()
                    return
            self._resources.drop_lost()
            if any(self._resources.can_start(task) for task in starving):
                return

    async def release_lost(self) -> None:
        """Release deliveries whose replies were lost, when nothing more is taken."""
        for partition in list(self._deliveries.partitions.values()):
            await self._release_unknown(partition)

    async def _partitions(self) -> list[Partition]:
        share = self._share()
        if share is None:
            return []
        if not self._takes_all:
            return [self._deliveries.partition(number) for number in share]
        return await self._store.partitions(self._slots.settings)

    async def _is_hopeless_here(self, need: CodeNeed) -> bool:
        """Whether this worker knows the task and has to let the jobs fail, because no code fits."""
        if need.task not in self._parked.code:
            return False
        if need.is_hopeless(await self._parked.live_code()):
            return True
        self._hopeless.met(need)
        return False

    async def _fail_after_grace(self, number: int, need: CodeNeed, since: float) -> float:
        """Take the jobs that no live worker can run and whose grace has passed: they fail here.

        Returns the seconds until the next look.
        """
        parked_for = await self._outage.retry_until_up(self._server_time) - since
        left = max(MISFIT_GRACE_SECONDS - parked_for, self._hopeless.grace_left(need))
        if left > 0:
            return min(left, PARKED_POLL_SECONDS)
        while await self._take(self._deliveries.partition(number), need, MISFIT_GRACE_SECONDS):
            pass
        return HOPELESS_POLL_SECONDS

    async def _server_time(self) -> float:
        return await server_time(self._store)

    async def _take(self, partition: Partition, need: CodeNeed, min_age: float = 0.0) -> bool:
        """Take jobs that have been parked for so many seconds, as many as there are free slots.

        Returns whether there may be more.
        """
        count = await wait_for_room(self._slots, self._buffer, self._limiter)
        try:
            taken, permitted = await self._unpark(partition, need, count, min_age)
        except ServerError as error:
            self._outage.failed(error, self)
            await self._outage.retry_until_up(partial(self._release_unknown, partition))
            self._outage.recovered(self)
            return True
        if taken is None or (permitted and len(taken) < permitted):
            return False
        if not permitted:
            await asyncio.sleep(
                TOKEN_POLL_SECONDS if self._resources.uses(need.task) else LIMIT_RETRY_SECONDS
            )
        return True

    async def _unpark(
        self, partition: Partition, need: CodeNeed, count: int, min_age: float
    ) -> tuple[list[Delivery] | None, int]:
        """The deliveries, or None if the queue does not read now; and how many it was allowed to take."""
        async with self._reading:
            if self._share() is None:
                return None, 0
            uses_tokens = self._resources.uses(need.task)
            leases = self._resources.reserve(need.task, count) if uses_tokens else []
            count = len(leases) if uses_tokens else count
            limited, permitted = self._limiter.limited, count
            taken: list[Delivery] = []
            try:
                if limited and count:
                    permitted = await self._limiter.acquire(count, wait_for_one=False)
                if permitted:
                    taken = await self._store.unpark(
                        partition, self._worker, need.pack(), permitted, min_age=min_age
                    )
                    if leases:
                        self._resources.attach(taken, leases)
                    self._remember(taken, need)
                    self._slots.admit(taken)
            finally:
                self._resources.attach((), leases)
                if limited and count:
                    self._limiter.fetched(permitted, len(taken))
            if limited and len(taken) < permitted:
                await self._limiter.settle_up()
        return taken, permitted

    def _remember(self, taken: list[Delivery], need: CodeNeed) -> None:
        """Remember which code has refused these jobs."""
        known = self._parked.refused_before
        for key in [key for key in known if not self._buffer.holds(key)]:
            del known[key]
        if need.refused:
            known.update((delivery_key(delivery), need) for delivery in taken)

    async def _release_unknown(self, partition: Partition) -> None:
        """Release deliveries whose replies were lost. No other reply may be on its way meanwhile."""
        async with self._reading:
            await self._deliveries.release_unknown_unparked(partition)
