"""The suspect taker: how the quarantine process gets the jobs that it runs.

The quarantine process reads no partition. It takes over the deliveries that ordinary workers have parked,
each in one step on the server. Until then a delivery belongs to the ordinary worker: should either process
die, the supervisor reclaims it from the one that has it.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from qbull.store.delivery import Delivery
from qbull.worker.fetch import Fetcher
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.limiter import Limiter
from qbull.worker.process.channel import TakeSuspect
from qbull.worker.slots import SlotRunner
from qbull.worker.supervisor_link import Quarantine
from qbull.worker.wiring import WorkerWiring

NEXT_SUSPECT_SECONDS = 0.25
"""The next suspect starts when the last one has ended or has run for this long.

So a job that crashes soon after its start takes no other suspect with it, and long jobs run side by side.
"""


class SuspectTaker:
    """Takes over the suspects of one queue, in the quarantine process, as fast as its slots can run them."""

    def __init__(
        self,
        wiring: WorkerWiring,
        deliveries: HeldDeliveries,
        limiter: Limiter,
        slots: SlotRunner,
        fetcher: Fetcher,
        quarantine: Quarantine,
    ) -> None:
        self._worker = wiring.worker
        self._outage = wiring.outage
        self._deliveries = deliveries
        self._buffer = deliveries.buffer
        self._limiter = limiter
        self._slots = slots
        self._fetcher = fetcher
        self._turn = quarantine.turn
        self._taken = quarantine.taken
        self._order = itertools.count()
        self._requests: asyncio.PriorityQueue[tuple[int, int, TakeSuspect]] = asyncio.PriorityQueue()

    def take(self, request: TakeSuspect) -> None:
        """Take over this suspect when it is its turn."""
        self._requests.put_nowait((request.rank, next(self._order), request))

    async def run(self) -> None:
        """Take over one suspect after the other."""
        while True:
            while self._slots.free_slots() <= self._buffer.waiting:
                self._buffer.room.clear()
                await self._buffer.room.wait()
            _, _, request = await self._requests.get()
            await self._limiter.acquire(1)
            async with self._turn:
                await self._take(request)

    async def _take(self, request: TakeSuspect) -> None:
        position = request.suspect.position
        partition = self._deliveries.partition(request.suspect.partition)

        async def take_over() -> list[Delivery]:
            if not await partition.take_over(position, request.holder, self._worker):
                return []
            mine = await self._fetcher.pending_deliveries([partition])
            return [delivery for delivery in mine if delivery.position == position]

        found: list[Delivery] = []
        try:
            found = await self._outage.retry_until_up(take_over)
            self._buffer.put(found)
        finally:
            self._limiter.fetched(1, len(found))
        self._slots.arrived()
        self._taken(request.suspect)
        with suppress(TimeoutError):
            async with asyncio.timeout(NEXT_SUSPECT_SECONDS):
                while any(delivery in self._buffer for delivery in found):
                    self._buffer.room.clear()
                    await self._buffer.room.wait()

    @property
    def idle(self) -> bool:
        """Whether it has nothing to run and nothing to take."""
        return self._requests.empty() and not len(self._buffer)
