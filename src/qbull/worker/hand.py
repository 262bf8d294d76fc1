"""The hand: the deliveries of one queue that this worker holds, those that wait for a free slot among them.

A delivery enters when it is fetched, waits in the order of its band, and leaves when all of it is settled or
given back. What the server says is this worker's and is not in the hand came with a reply that was lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from qbull.store.names import BANDS
from qbull.store.partition import Partition
from qbull.store.store import Delivery


class Hand:
    def __init__(self) -> None:
        self._held: dict[tuple[int, bytes], Delivery] = {}
        self._bands: tuple[deque[Delivery], ...] = tuple(deque() for _ in BANDS)
        self.waiting = 0
        self.finished = 0
        self.taken = time.monotonic()
        """When something was begun last."""

    def put(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            place = place_of(delivery)
            name = (delivery.partition.number, place)
            if name not in self._held:
                self._held[name] = delivery
                self._bands[int(delivery.band, 16)].append(delivery)
                self.waiting += 1

    def take(self) -> Delivery | None:
        """The next delivery to run: the most urgent band first."""
        for band in self._bands:
            if band:
                self.waiting -= 1
                self.taken = time.monotonic()
                return band.popleft()
        return None

    def drop(self, partition: Partition, place: bytes) -> None:
        if self._held.pop((partition.number, place), None) is not None:
            self.finished += 1

    def take_all(self) -> list[Delivery]:
        """Everything that was not begun, for giving it back."""
        rest = [delivery for band in self._bands for delivery in band]
        for band in self._bands:
            band.clear()
        self.waiting = 0
        return rest

    def held(self) -> list[Delivery]:
        return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


def place_of(delivery: Delivery) -> bytes:
    return delivery.band.encode() + delivery.entry
