"""The prefetch buffer: the deliveries of one queue that this worker holds, waiting or running.

A delivery enters when it is fetched, waits in the order of its priority level, and leaves when all of it is
settled or released. If the server names a delivery of this worker that is not in the buffer, the reply that
carried it was lost.

One job never runs twice at the same time here. If a job is delivered again while its earlier delivery is
still here, because others took this worker for dead, the later delivery waits until the earlier one has left.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from qbull.core.parking import UNPARKED_LEVEL
from qbull.store.delivery import Delivery
from qbull.store.names import PRIORITY_LEVELS, RETURNED_LEVEL
from qbull.store.verbs.partition import Partition

_LEVEL_INDEX = {level: index for index, level in enumerate(PRIORITY_LEVELS)}
_LEVEL_INDEX[UNPARKED_LEVEL] = _LEVEL_INDEX[RETURNED_LEVEL]


class PrefetchBuffer:
    """For one queue. `room` is set when a slot has become free, or when fewer deliveries wait for one."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, bytes], Delivery] = {}
        self._holders: dict[bytes, Delivery] = {}
        """The delivery of each job that runs or waits for a slot, by the id of the job."""
        self._deferred: list[Delivery] = []
        """Deliveries of jobs that are here already: each waits until the earlier delivery has left."""
        self._abandoned: set[tuple[int, bytes]] = set()
        self._offered: set[tuple[int, bytes]] = set()
        self._trackers: list[set[tuple[int, bytes]]] = []
        self._levels: tuple[deque[Delivery], ...] = tuple(deque() for _ in PRIORITY_LEVELS)
        self._unconfirmed: dict[tuple[int, bytes], Delivery] = {}
        self.room = asyncio.Event()
        self.resumed = asyncio.Event()
        """Set when a deferred delivery may run."""
        self.waiting = 0
        self.reserved = 0
        """Free slots that the fetcher leaves to parked jobs."""
        self.finished = 0
        self.last_taken_at = time.monotonic()
        """When a slot last took a delivery."""

    def made_room(self) -> None:
        """A slot has become free, or fewer deliveries wait for one: the fetcher may fetch more."""
        if not self.room.is_set():
            self.room.set()

    @contextmanager
    def track_departures(self) -> Iterator[set[tuple[int, bytes]]]:
        """Collect the deliveries that leave while the server lists the deliveries of this worker.

        The list may still contain them although they have been settled or released.
        """
        left: set[tuple[int, bytes]] = set()
        self._trackers.append(left)
        try:
            yield left
        finally:
            self._trackers = [other for other in self._trackers if other is not left]

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Add deliveries that wait for a slot. One that is here already is not added again."""
        held, holders = self._held, self._holders
        for delivery in deliveries:
            name = delivery.partition.number, delivery.position
            if name in held or name in self._offered:
                continue
            held[name] = delivery
            fields = delivery.fields
            if len(fields) == 2 and holders.setdefault(fields[0], delivery) is delivery:
                # Most deliveries have one job, which is not here yet.
                self._levels[_LEVEL_INDEX[delivery.level]].append(delivery)
                self.waiting += 1
            elif not self._admit(delivery):
                self._deferred.append(delivery)

    def put_unconfirmed(self, delivery: Delivery) -> bool:
        """Add a delivery that may not start yet. Returns False if it is here already."""
        name = delivery_key(delivery)
        if name in self._held:
            return False
        self._held[name] = self._unconfirmed[name] = delivery
        return True

    def park(self, rest: Delivery) -> bool:
        """The rest of a train may not start yet. Returns False if this worker no longer holds it."""
        name = delivery_key(rest)
        held = self._held.get(name)
        if held is None:
            return False
        self._unhold(held)
        self._held[name] = self._unconfirmed[name] = rest
        return True

    def confirm(self, delivery: Delivery, asked: float) -> None:
        """A delivery may start: at the time `asked` the server still had it as this worker does."""
        name = delivery_key(delivery)
        if self._unconfirmed.pop(name, None) is not None:
            self._held[name] = delivery = delivery._replace(requested_at=asked)
            if not self._admit(delivery):
                self._deferred.append(delivery)
                self.made_room()

    @property
    def unconfirmed(self) -> int:
        """The number of deliveries that may not start yet."""
        return len(self._unconfirmed)

    def is_unconfirmed(self, delivery: Delivery) -> bool:
        """Whether a delivery waits for its confirmation. It may have been released meanwhile."""
        return delivery_key(delivery) in self._unconfirmed

    def hold_for_release(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Hold the deliveries that are not here yet without running them, and return these for release."""
        new = [delivery for delivery in deliveries if delivery not in self]
        self._held.update((delivery_key(delivery), delivery) for delivery in new)
        return new

    def take(self) -> Delivery | None:
        """The next delivery to run, from the most urgent priority level."""
        for level in self._levels:
            if level:
                self.waiting -= 1
                self.last_taken_at = time.monotonic()
                return level.popleft()
        return None

    @property
    def returned_waiting(self) -> int:
        """The number of returned or formerly parked jobs that wait for a slot. They come first."""
        return len(self._levels[_LEVEL_INDEX[RETURNED_LEVEL]])

    def drop(self, *deliveries: Delivery) -> None:
        """Forget deliveries that this worker no longer holds."""
        holders = self._holders
        for delivery in deliveries:
            name = delivery.partition.number, delivery.position
            held = self._held.pop(name, None)
            if held is None:
                continue
            self.finished += 1
            fields = held.fields
            if len(fields) == 2 and holders.get(fields[0]) is held:
                del holders[fields[0]]
            else:
                self._unhold(held)
            if self._deferred:
                self._resume()
            if self._unconfirmed:
                self._unconfirmed.pop(name, None)
            for left in self._trackers:
                left.add(name)
        self.made_room()

    def _admit(self, delivery: Delivery) -> bool:
        """Let a delivery wait for a slot, unless one of its jobs is here already."""
        holders, ids = self._holders, delivery.fields[::2]
        if not holders.keys().isdisjoint(ids):
            return False
        holders.update(dict.fromkeys(ids, delivery))
        self._levels[_LEVEL_INDEX[delivery.level]].append(delivery)
        self.waiting += 1
        return True

    def _unhold(self, delivery: Delivery) -> None:
        """Its jobs are no longer running or waiting for a slot here."""
        holders, fields = self._holders, delivery.fields
        for id in fields[::2]:
            if holders.get(id) is delivery:
                del holders[id]

    def _resume(self) -> None:
        """Let deferred deliveries wait for a slot whose jobs are no longer here otherwise, in order."""
        before, self._deferred = self._deferred, []
        for delivery in before:
            if delivery not in self:
                continue
            if self._admit(delivery):
                self.resumed.set()
            else:
                self._deferred.append(delivery)

    def abandon(self, partition: int, position: bytes) -> None:
        """Never release this delivery: a job of it runs on, and only the end of this process ends it."""
        self._abandoned.add((partition, position))

    def offer(self, delivery: Delivery) -> None:
        """Hold a delivery that another process will take over: it neither runs here nor is released."""
        self.drop(delivery)
        self._offered.add(delivery_key(delivery))

    def take_away(self, delivery: Delivery) -> None:
        """Forget an offered delivery: another process has it."""
        self._offered.discard(delivery_key(delivery))

    @property
    def offered(self) -> int:
        """The number of deliveries that another process will take over."""
        return len(self._offered)

    @property
    def abandoned(self) -> int:
        """The number of abandoned deliveries."""
        return sum(self.is_abandoned(delivery) for delivery in self._held.values()) if self._abandoned else 0

    def is_abandoned(self, delivery: Delivery) -> bool:
        """Whether only the end of this process ends its hold on the delivery.

        Another process will take it over, or a job of it runs on, for this delivery or for an earlier one.
        """
        if delivery_key(delivery) in self._offered:
            return True
        if not self._abandoned:
            return False
        holders = (self._holders.get(id) for id in delivery.fields[::2])
        names = {delivery_key(holder) for holder in (delivery, *holders) if holder is not None}
        return not self._abandoned.isdisjoint(names)

    def take_all(self, of: Container[int] | None = None) -> list[Delivery]:
        """All deliveries that no slot has taken, for release. With `of`, only those of these partitions."""
        taken: list[Delivery] = []
        for level in self._levels:
            kept = [delivery for delivery in level if of is not None and delivery.partition.number not in of]
            taken += [delivery for delivery in level if of is None or delivery.partition.number in of]
            level.clear()
            level.extend(kept)
        self.waiting -= len(taken)
        for name, delivery in list(self._unconfirmed.items()):
            if of is None or delivery.partition.number in of:
                taken.append(self._unconfirmed.pop(name))
        if taken:
            self.made_room()
        return taken

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Let deliveries wait here again that could not be released."""
        for delivery in deliveries:
            if delivery not in self or delivery in self._deferred:
                continue
            self._unhold(delivery)
            if not self._admit(delivery):
                self._deferred.append(delivery)

    def __contains__(self, delivery: Delivery) -> bool:
        name = delivery_key(delivery)
        return name in self._held or name in self._offered

    def holds(self, key: tuple[int, bytes]) -> bool:
        """Whether the delivery with this key is here."""
        return key in self._held

    def partitions(self) -> dict[int, Partition]:
        """The partitions that have a delivery here, by number."""
        return {delivery.partition.number: delivery.partition for delivery in self._held.values()}

    def started(self) -> set[tuple[int, bytes]]:
        """The deliveries that do not wait for a slot, by name: others must not get them.

        Other threads may ask.
        """
        waiting = {delivery_key(delivery) for level in self._levels for delivery in list(level)}
        return set(self._held) - waiting | self._offered

    def held(self) -> list[Delivery]:
        """All deliveries, also those that run."""
        return list(self._held.values())

    def __len__(self) -> int:
        return len(self._held)


def delivery_key(delivery: Delivery) -> tuple[int, bytes]:
    """The name of a delivery among all partitions of its queue."""
    return delivery.partition.number, delivery.position
