"""Fetch: keep the prefetch buffer filled, and not fuller than necessary.

A worker holds the deliveries that its free slots can start now, and those that it will start within the next
moments at its present speed. So jobs of a millisecond come in hundreds, and no job waits behind a job of a
minute that another worker could have started.

One blocking read waits on all partitions that a worker serves. While some of them have more than it wants,
the fetcher reads these one after the other, so that outcomes which are settled together belong to one
partition. A cluster does not allow a read over several partitions; there each partition has its own read.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from qbull.errors import ServerError
from qbull.store.connection.server import ErrorReply
from qbull.store.delivery import Delivery
from qbull.store.read.pending import pending_deliveries, pending_in
from qbull.store.store import ReadyStream
from qbull.store.verbs.partition import Partition
from qbull.worker.actor import start_actor
from qbull.worker.limiter import PREFETCH_SECONDS, Limiter
from qbull.worker.polling import poll_pause
from qbull.worker.prefetch import PrefetchBuffer, delivery_key
from qbull.worker.slots import SlotRunner
from qbull.worker.turns import Turns
from qbull.worker.wiring import WorkerWiring

FETCH_BLOCK_SECONDS = 5.0
MAX_FETCHED_DELIVERIES = 500
REFILL_RATIO = 0.75
"""Part of the spare slots of a limit that must still hold jobs when a worker asks for more."""
CLOSED_READ_GRACE_SECONDS = 1.0
"""Seconds after which a busy server has noticed that a read was closed.

Until then it may still deliver to it.
"""
PENDING_CHECK_SECONDS = 30.0
"""How often a worker asks the server which deliveries it has.

A primary that is replaced twice within moments may bring back a delivery that was settled long ago.
"""
BACKLOG_TURN_SECONDS = 0.05
"""A read that takes longer does not keep those of other partitions waiting: its node may be frozen."""
PLAIN_STREAM_COUNT = 2
"""Streams of a partition without priorities: the default level, and the one for released and retried jobs."""


class Fetcher:
    """For one queue. It fills the buffer and tells the slots."""

    def __init__(
        self,
        wiring: WorkerWiring,
        buffer: PrefetchBuffer,
        slots: SlotRunner,
        limiter: Limiter,
    ) -> None:
        self._store = wiring.store
        self._worker = wiring.worker
        self._outage = wiring.outage
        self._buffer = buffer
        self._slots = slots
        self._limiter = limiter
        self._pace = ThroughputMeter()
        self._readers: dict[tuple[int, ...], asyncio.Task[None]] = {}
        self._ended: set[asyncio.Task[None]] = set()
        self._backlog_reads = Turns(BACKLOG_TURN_SECONDS)
        self._turn = 0
        self._streams: dict[int, dict[bytes, ReadyStream]] = {}

    async def serve(self, partitions: Sequence[Partition]) -> None:
        """Read only these partitions from now on. Called again when a new priority level is in use."""
        wanted: dict[int, dict[bytes, ReadyStream]] = {}
        for partition in partitions:
            streams = await self._store.streams([partition])
            if streams != self._streams.get(partition.number):
                await self._store.ensure_groups(streams)
            wanted[partition.number] = streams
        changed = {number for number, streams in wanted.items() if self._streams.get(number) != streams}
        gone = self._streams.keys() - wanted.keys()
        self._streams = wanted
        groups = (
            [(number,) for number in wanted]
            if self._store.server.same_slot_only
            else [tuple(wanted)]
            if wanted
            else []
        )
        for group, reader in list(self._readers.items()):
            if group not in groups or changed.intersection(group) or gone.intersection(group):
                self._close_read(group, reader)
        for group in groups:
            if group not in self._readers:
                self._readers[group] = start_actor(partial(self._read, group, cut=bool(changed or gone)))

    async def stop(self) -> None:
        for group, reader in list(self._readers.items()):
            self._close_read(group, reader)
        if self._ended:
            await asyncio.wait(self._ended)

    async def pending_deliveries(self, partitions: Sequence[Partition]) -> list[Delivery]:
        """The deliveries of these partitions that the server counts as pending for this worker."""
        return await pending_deliveries(self._store, self._worker, partitions)

    def _streams_of(self, group: Sequence[int]) -> dict[bytes, ReadyStream]:
        return {name: stream for number in group for name, stream in self._streams[number].items()}

    def _block_seconds(self) -> float:
        return poll_pause(FETCH_BLOCK_SECONDS, len(self._readers), up_to=8)

    def _pending_check_seconds(self) -> float:
        return poll_pause(PENDING_CHECK_SECONDS, len(self._readers), up_to=16)

    def _close_read(self, group: tuple[int, ...], reader: asyncio.Task[None]) -> None:
        """Close a read. If a reply is on its way, the next reader picks up its deliveries."""
        del self._readers[group]
        reader.cancel()
        self._ended.add(reader)
        reader.add_done_callback(self._ended.discard)
        reader.add_done_callback(lambda _: self._limiter.abandon())

    async def _read(self, group: tuple[int, ...], *, cut: bool) -> None:
        # A reply may have been lost, with deliveries in it.
        lost = cut
        look_again = time.monotonic() + (CLOSED_READ_GRACE_SECONDS if cut else self._pending_check_seconds())
        # Partitions that have more than was wanted.
        more: deque[int] = deque()
        # There may be more than the limiter granted.
        hungry = True
        who = object()
        while True:
            want = self._want()
            if want <= 0:
                await self._wait_for_room()
                continue
            if time.monotonic() > look_again:
                lost, look_again = True, time.monotonic() + self._pending_check_seconds()
            try:
                if lost:
                    with self._buffer.track_departures() as left:
                        mine = await pending_in(self._store, self._worker, self._streams_of(group))
                        deliveries = [delivery for delivery in mine if delivery_key(delivery) not in left]
                    lost = False
                    if self._limiter.limited:
                        # Deliveries that are not in the buffer have no slot of the limit.
                        await self._give_back([mine for mine in deliveries if mine not in self._buffer])
                        deliveries = []
                elif self._limiter.limited and hungry:
                    deliveries = await self._read_permitted(group, want)
                    hungry = bool(deliveries)
                elif self._limiter.limited:
                    hungry, deliveries = await self._await_some(group)
                elif more:
                    deliveries = await self._read_one(more)
                else:
                    deliveries = await self._read_all(group, more, want)
            except ServerError as error:
                if isinstance(error, ErrorReply) and error.code == "NOGROUP":  # the server was emptied
                    await self._make_groups(group)
                    continue
                self._outage.failed(error, who)
                await asyncio.sleep(0.05)
                lost, look_again = True, time.monotonic() + CLOSED_READ_GRACE_SECONDS
                continue
            self._outage.recovered(who)
            if deliveries:
                self._slots.admit(deliveries)
                # The new deliveries start before the next read.
                await asyncio.sleep(0)

    async def _wait_for_room(self) -> None:
        """Wait until more may be wanted. Look now and then: nobody reads this partition in the meantime."""
        self._buffer.room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PENDING_CHECK_SECONDS):
                await self._buffer.room.wait()

    async def _read_one(self, more: deque[int]) -> list[Delivery]:
        """Read as much as there is room for from one partition.

        On a cluster each partition has a reader. If all of them read for the same room, the reads are small,
        and together they take more than there is room for.
        """
        async with self._backlog_reads.one():
            want = self._want()
            return await self._read_backlog(more, want) if want > 0 else []

    async def _read_backlog(self, more: deque[int], want: int) -> list[Delivery]:
        number = more.popleft()
        count = min(want, MAX_FETCHED_DELIVERIES)
        if len(self._streams[number]) > PLAIN_STREAM_COUNT:
            deliveries = await self._store.fetch_some(self._streams[number], self._worker, count)
        else:
            deliveries = await self._store.fetch(self._streams[number], self._worker, count, None)
        if len(deliveries) >= count:
            more.append(number)
        return deliveries

    async def _read_permitted(self, group: tuple[int, ...], want: int) -> list[Delivery]:
        """Read no more than may start. Waits until that is at least one."""
        spare = (
            int(self._pace(self._buffer.finished) * PREFETCH_SECONDS) if self._limiter.has_max_active else 0
        )
        permitted = await self._limiter.acquire(want, spare=spare)
        deliveries: list[Delivery] = []
        try:
            deliveries = await self._store.fetch_some(self._in_turn(group), self._worker, permitted)
            self._slots.admit(deliveries)
        finally:
            self._limiter.fetched(permitted, len(deliveries))
        if not deliveries:
            await self._limiter.settle_up()
        return deliveries

    async def _await_some(self, group: tuple[int, ...]) -> tuple[bool, list[Delivery]]:
        """Wait until there is something to read, and release it if it may not start at once."""
        block = self._block_seconds()
        found = await self._store.fetch(self._in_turn(group), self._worker, 1, block)
        permitted = await self._limiter.acquire(len(found), wait_for_one=False) if found else 0
        self._slots.admit(found[:permitted])
        self._limiter.fetched(permitted, permitted)
        await self._give_back(found[permitted:])
        return bool(found), found[:permitted]

    def _in_turn(self, group: tuple[int, ...]) -> dict[bytes, ReadyStream]:
        """The streams of these partitions, the most urgent level first. Partitions take turns."""
        self._turn += 1
        first = self._turn % len(group)
        streams = [
            item for number in (*group[first:], *group[:first]) for item in self._streams[number].items()
        ]
        return dict(sorted(streams, key=lambda item: item[1].level))

    async def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.partition.release(self._worker, [delivery.position])

    async def _read_all(self, group: tuple[int, ...], more: deque[int], want: int) -> list[Delivery]:
        streams = self._streams_of(group)
        if len(group) > 1:
            streams = dict(sorted(streams.items(), key=lambda item: item[1].level))
        readers = max(len(self._readers), 1)
        count = min(max(want // (len(group) * readers), 1), MAX_FETCHED_DELIVERIES)
        for number in group:
            if len(self._streams[number]) > PLAIN_STREAM_COUNT:
                # A read of several levels takes from each of them; the urgent ones must be read first.
                deliveries = await self._store.fetch_some(
                    self._streams[number], self._worker, min(want, MAX_FETCHED_DELIVERIES)
                )
                if deliveries:
                    return deliveries
                count = 1
        block = self._block_seconds()
        deliveries = await self._store.fetch(streams, self._worker, count, block)
        if len(group) > 1 or count < want:
            seen = [delivery.partition.number for delivery in deliveries]
            more.extend(number for number in dict.fromkeys(seen) if seen.count(number) >= count)
        return deliveries

    async def _make_groups(self, group: tuple[int, ...]) -> None:
        for number in group:
            await self._outage.retry_until_up(partial(self._store.ensure_groups, self._streams[number]))

    def _want(self) -> int:
        ahead = int(self._pace(self._buffer.finished) * self._limiter.prefetch_seconds)
        held = self._buffer.waiting + self._buffer.unconfirmed + self._buffer.reserved
        want = self._slots.free_slots() + ahead - held
        if want <= 0 and -want < self._limiter.spare_granted * REFILL_RATIO:
            # Ask for the next spare slots before those of the last request are used up.
            want = 1
        return want


class ThroughputMeter:
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
