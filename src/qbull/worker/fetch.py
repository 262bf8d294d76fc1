"""Fetch: keep the hand filled, and not fuller than it should be.

A worker holds what its free slots can begin now, and what it will begin within the next moments at the speed it
is running. So jobs of a millisecond come in hundreds, and nobody waits behind a job of a minute that another
worker could have begun.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from qbull.errors import ServerError
from qbull.store.connect import ErrorReply
from qbull.store.partition import Partition
from qbull.store.store import Delivery, Store, Stream
from qbull.worker.hand import Hand
from qbull.worker.outage import Outage

BLOCK = 5.0
AHEAD = 0.05
"""Seconds of work that a worker may hold beyond what it is running."""
MOST = 500


class Fetcher:
    """For one queue. `arrived` is called when there is something to begin."""

    def __init__(
        self,
        store: Store,
        partitions: list[Partition],
        worker: str,
        hand: Hand,
        free_slots: Callable[[], int],
        arrived: Callable[[], None],
        outage: Outage,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._worker = worker
        self._hand = hand
        self._free_slots = free_slots
        self._arrived = arrived
        self._outage = outage
        self._streams: dict[bytes, Stream] = {}
        self._room = asyncio.Event()
        self._pace = Pace()

    async def run(self) -> None:
        lost = False  # a reply may have been lost, with deliveries in it
        while True:
            want = self._want()
            if want <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            asked = time.monotonic()
            try:
                if lost:
                    await self.refresh()
                    await self._take_up()
                    lost = False
                    self._outage.over(asked)
                    continue
                deliveries = await self._read(want)
            except ServerError as error:
                self._outage.met(error)
                await asyncio.sleep(0.05)
                lost = True
                continue
            self._outage.over(asked)
            if deliveries:
                self._hand.put(deliveries)
                self._arrived()

    def made_room(self) -> None:
        """A slot is free, or something has left the hand."""
        if not self._room.is_set():
            self._room.set()

    async def refresh(self) -> None:
        """Look which streams there are now; make the groups that are missing."""
        streams = await self._store.streams(self._partitions)
        await self._store.ensure_groups(streams)
        self._streams = streams

    async def unknown(self) -> list[Delivery]:
        """What the server has in this worker's name."""
        return await self._store.fetch(self._streams, self._worker, 10_000, None, again=True)

    async def _take_up(self) -> None:
        """Take what a lost reply had brought. What is in the hand already stays as it is."""
        self._hand.put(await self.unknown())
        self._arrived()

    async def _read(self, want: int) -> list[Delivery]:
        try:
            return await self._store.fetch(self._streams, self._worker, min(want, MOST), BLOCK)
        except ErrorReply as error:
            if error.code not in ("NOGROUP", "UNBLOCKED"):
                raise
            await self.refresh()  # the server was emptied, or a band is new
            return []

    def _want(self) -> int:
        return self._free_slots() + int(self._pace(self._hand.finished) * AHEAD) - self._hand.waiting


class Pace:
    """Deliveries finished in a second, over the last moments."""

    def __init__(self) -> None:
        self._then = time.monotonic()
        self._finished = 0
        self._rate = 0.0

    def __call__(self, finished: int) -> float:
        now = time.monotonic()
        passed = now - self._then
        if passed >= 0.005:
            share = min(passed / 0.1, 1.0)
            self._rate += ((finished - self._finished) / passed - self._rate) * max(share, 0.3)
            self._then, self._finished = now, finished
        return self._rate
