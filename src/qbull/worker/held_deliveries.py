"""Held deliveries: how the deliveries of one queue leave this worker.

A delivery leaves when its outcomes are written, when another worker has taken it over, or when the rest of
its jobs is released. In each case it frees a slot of the queue's limit, and the worker may fetch more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from qbull.errors import ServerError
from qbull.store.delivery import Delivery
from qbull.store.verbs.partition import Partition
from qbull.worker.actor import BackgroundTasks
from qbull.worker.assignment import Assignment
from qbull.worker.limiter import Limiter
from qbull.worker.prefetch import PrefetchBuffer, delivery_key
from qbull.worker.process.channel import SuspectFound
from qbull.worker.settle import Settler
from qbull.worker.wiring import WorkerWiring


class HeldDeliveries:
    """For one queue: its partitions, a settler for each, and the deliveries in the prefetch buffer.

    `confirmed` is the server that confirms outcomes; None if the order of the queue is not confirmed.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        assignment: Assignment,
        buffer: PrefetchBuffer,
        limiter: Limiter,
        background: BackgroundTasks,
    ) -> None:
        self._store = wiring.store
        self._worker = wiring.worker
        self._outage = wiring.outage
        self._settings = assignment.settings
        self._limiter = limiter
        self._background = background
        self._suspects = wiring.link.suspects if wiring.link is not None else None
        self.buffer = buffer
        durability = assignment.confirmed_order
        self.confirmed = wiring.store.confirmed(durability) if durability is not None else None
        self.partitions: dict[int, Partition] = {}
        self.settlers: dict[int, Settler] = {}

    def partition(self, number: int) -> Partition:
        """The partition with this number; the first use opens it and its settler."""
        if number not in self.partitions:
            partition = self.partitions[number] = self._store.partition(self._settings, number)
            self.settlers[number] = Settler(partition, self._outage, self.drop, self.confirmed)
        return self.partitions[number]

    def drop(self, *deliveries: Delivery) -> None:
        """Forget deliveries: they are settled or released, or another worker has them."""
        self.buffer.drop(*deliveries)
        if self._limiter.limited:
            self._limiter.slot_freed()

    def release_rest(self, delivery: Delivery) -> None:
        """Give the unfinished jobs of a delivery to other workers, in the background.

        The outcomes of its finished jobs are written first, or these jobs would run again.
        """

        async def release() -> None:
            await self.settlers[delivery.partition.number].flush()
            give_back = partial(delivery.partition.release, self._worker, [delivery.position])
            await self._outage.retry_until_up(give_back)
            self.drop(delivery)

        self._background.start(release())

    def hand_over(self, delivery: Delivery, crashes: int, task: str) -> None:
        """Leave the unfinished jobs of a delivery to the quarantine process, in the background.

        The outcomes of its finished jobs are written first. While it waits, the delivery holds no slot of a
        limit.
        """
        suspects = self._suspects
        assert suspects is not None

        async def offer() -> None:
            await self.settlers[delivery.partition.number].flush()
            if delivery not in self.buffer:
                return
            self.buffer.offer(delivery)
            if self._limiter.limited:
                self._limiter.slot_freed()
            name, number = self._settings.name, delivery.partition.number
            suspect = SuspectFound(name, number, delivery.position, crashes, task)
            suspects.offer(suspect, partial(self.buffer.take_away, delivery))

        self._background.start(offer())

    async def flush(self) -> None:
        """Wait until all outcomes are written."""
        for settler in list(self.settlers.values()):
            await settler.flush()

    async def release(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Let other workers start these. Returns those that stay, because the server is unavailable."""
        by_partition: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            if not self.buffer.is_abandoned(delivery):
                by_partition.setdefault(delivery.partition.number, []).append(delivery)
        left: list[Delivery] = []
        for number, returned in by_partition.items():
            try:
                positions = [delivery.position for delivery in returned]
                await self.partitions[number].release(self._worker, positions)
            except ServerError:
                left += returned
            else:
                for delivery in returned:
                    self.drop(delivery)
        return left

    async def release_unknown_unparked(self, partition: Partition) -> None:
        """Release formerly parked jobs that are not in the buffer: the reply that carried them was lost."""
        with self.buffer.track_departures() as left:
            mine = await self._store.unparked(partition, self._worker)
        lost = [one for one in mine if one not in self.buffer and delivery_key(one) not in left]
        if lost:
            await partition.release(self._worker, [delivery.position for delivery in lost])
