"""The hand: the deliveries of one queue that this worker holds, those that wait for a free slot among them.

A delivery enters when it is fetched, waits in the order of its band, and leaves when all of it is settled or
given back. What the server says is this worker's and is not in the hand came with a reply that was lost.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from qbull.store.delivery import Delivery
from qbull.store.names import PRIORITY_LEVELS
from qbull.store.verbs.partition import Partition


class PrefetchBuffer:
    def __init__(self) -> None:
        self._held: dict[tuple[int, bytes], Delivery] = {}
        self._trackers: list[set[tuple[int, bytes]]] = []
        self._levels: tuple[deque[Delivery], ...] = tuple(deque() for _ in PRIORITY_LEVELS)
        self.waiting = 0
        self.finished = 0
        self.last_taken_at = time.monotonic()
        """When something was begun last."""

    @contextmanager
    def track_departures(self) -> Iterator[set[tuple[int, bytes]]]:
        """While the server is asked what is in this worker's name: what leaves the hand meanwhile, and may still be
        in the answer, although it has been settled or given back."""
        left: set[tuple[int, bytes]] = set()
        self._trackers.append(left)
        try:
            yield left
        finally:
            self._trackers = [other for other in self._trackers if other is not left]

    def put(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            name = delivery_key(delivery)
            if name not in self._held:
                self._held[name] = delivery
                self._levels[int(delivery.level, 16)].append(delivery)
                self.waiting += 1

    def hold_for_release(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Those of them that are not here yet, held from now on but not to be run: they are to be given back."""
        new = [delivery for delivery in deliveries if delivery not in self]
        self._held.update((delivery_key(delivery), delivery) for delivery in new)
        return new

    def take(self) -> Delivery | None:
        """The next delivery to run: the most urgent band first."""
        for level in self._levels:
            if level:
                self.waiting -= 1
                self.last_taken_at = time.monotonic()
                return level.popleft()
        return None

    def drop(self, delivery: Delivery) -> None:
        name = delivery_key(delivery)
        if self._held.pop(name, None) is not None:
            self.finished += 1
            for left in self._trackers:
                left.add(name)

    def take_all(self, of: Container[int] | None = None) -> list[Delivery]:
        """Everything that was not begun, or all of it `of` some partitions, for giving it back."""
        taken: list[Delivery] = []
        for level in self._levels:
            kept = [delivery for delivery in level if of is not None and delivery.partition.number not in of]
            taken += [delivery for delivery in level if of is None or delivery.partition.number in of]
            level.clear()
            level.extend(kept)
        self.waiting -= len(taken)
        return taken

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """They could not be given to others: they wait here again."""
        for delivery in deliveries:
            if delivery in self:
                self._levels[int(delivery.level, 16)].append(delivery)
                self.waiting += 1

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery_key(delivery) in self._held

    def partitions(self) -> dict[int, Partition]:
        """Those of which something is here."""
        return {delivery.partition.number: delivery.partition for delivery in self._held.values()}

    def held(self) -> list[Delivery]:
        return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


def delivery_key(delivery: Delivery) -> tuple[int, bytes]:
    return delivery.partition.number, delivery.position
