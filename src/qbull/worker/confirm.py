"""Confirm: a job of a lane starts only when the outcome of the job before it is safe.

Only in a queue with an order, and with a durability of "durable" or more. Otherwise a kill of the worker or a
failover could lose the outcome of a job after the next one of its lane has started, and the job would run
again behind it. With "durable" an outcome is safe when the server has answered, because it flushes first.
With "replicated" and "strict" the replicas must confirm it.

A delivery exists because the jobs before it in its lane have ended, in whatever way: settled, reclaimed,
cancelled, promoted. All of that was written before it, to the same server. So it is enough that a server
which still has the delivery confirms everything up to now.

- After a fetch, the replicas confirm each delivery of a lane before it starts (lua/holds.lua). The deliveries
  of a partition that arrive while one confirmation is in flight share the next one.
- In a train, the settle call of a job confirms its outcome, and then the next job of the train may start. No
  slot waits for that: other deliveries run meanwhile.

If the replicas do not confirm, the deliveries wait here and start when the replicas are back. If the worker
stops or the queue is paused before that, they are released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from qbull.store.confirm import ConfirmedServer
from qbull.store.delivery import DeliveredJob, Delivery
from qbull.store.verbs.confirmed_order import confirm_deliveries
from qbull.store.verbs.partition import Partition
from qbull.worker.actor import BackgroundTasks
from qbull.worker.brake import Brake
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.wiring import WorkerWiring

MAX_CONFIRMED_DELIVERIES = 500
"""Deliveries in one call. The limit bounds how long the script blocks the server."""


class OrderConfirmer:
    """For one queue.

    Args:
        confirmed: The server, with the durability of the app.
        deliveries: Has the prefetch buffer, in which confirmed deliveries wait for a slot.
        brake: While it is on, the rest of a train is released instead.
        wiring: Waits for the server and for its replicas.
        arrived: Called when deliveries have become ready to start: `SlotRunner.arrived`.
    """

    def __init__(
        self,
        confirmed: ConfirmedServer,
        deliveries: HeldDeliveries,
        brake: Brake,
        wiring: WorkerWiring,
        arrived: Callable[[], None],
    ) -> None:
        self._confirmed = confirmed
        self._deliveries = deliveries
        self._buffer = deliveries.buffer
        self._brake = brake
        self._outage = wiring.outage
        self._worker = wiring.worker
        self._arrived = arrived
        self._waiting: dict[int, list[Delivery]] = {}
        self._asking: set[int] = set()
        self._tasks = BackgroundTasks()

    async def stop(self) -> None:
        """Let nothing more start. The worker releases the deliveries that wait here."""
        await self._tasks.stop()

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries were fetched. Those without a lane wait for a slot at once."""
        for delivery in deliveries:
            if not delivery.is_in_lane or not self._confirmed.waits:
                self._buffer.put([delivery])
            elif self._buffer.put_unconfirmed(delivery):
                self._ask(delivery)

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries could not be released: they wait here again."""
        for delivery in deliveries:
            if delivery.is_in_lane and self._confirmed.waits and self._buffer.park(delivery):
                self._ask(delivery)
            else:
                self._buffer.put_back([delivery])

    def ended(self, delivered: DeliveredJob, started_at: float) -> None:
        """A job of a train has ended: the next one starts when its outcome is written and confirmed."""
        delivery = delivered.delivery
        rest = delivery.after(delivered.number, started_at)
        settler = self._deliveries.settlers[delivery.partition.number]
        settler.confirm(delivered, partial(self._written, rest, time.monotonic()))

    def _written(self, rest: Delivery, ended_at: float, is_confirmed: bool) -> None:
        if self._brake.on:
            if not self._brake.stopping:
                self._deliveries.release_rest(rest)
        elif not self._buffer.park(rest):
            return
        elif is_confirmed:
            self._buffer.finished += 1
            self._buffer.confirm(rest, ended_at)
            self._arrived()
        else:
            self._ask(rest)

    def _ask(self, delivery: Delivery) -> None:
        if self._brake.stopping:
            # The worker releases it.
            return
        number = delivery.partition.number
        self._waiting.setdefault(number, []).append(delivery)
        if number not in self._asking:
            self._asking.add(number)
            self._tasks.start(self._confirm(delivery.partition))

    async def _confirm(self, partition: Partition) -> None:
        number = partition.number
        try:
            while waiting := self._waiting.pop(number, None):
                some, rest = waiting[:MAX_CONFIRMED_DELIVERIES], waiting[MAX_CONFIRMED_DELIVERIES:]
                if rest:
                    self._waiting[number] = rest
                asked = time.monotonic()
                states = [delivery.state for delivery in some]
                ask = partial(confirm_deliveries, partition, self._confirmed, self._worker, states)
                for delivery, word in zip(some, await self._outage.retry_until_up(ask), strict=True):
                    self._answered(delivery, word, asked)
                self._arrived()
        finally:
            self._asking.discard(number)

    def _answered(self, delivery: Delivery, word: bytes, asked: float) -> None:
        if word == b"held":
            self._buffer.confirm(delivery, asked)
        elif not self._buffer.is_unconfirmed(delivery):
            # It was released meanwhile.
            return
        elif word == b"changed":
            # A failover has lost the outcome of the job before it, which runs again first.
            self._deliveries.release_rest(delivery)
        else:
            # Another worker has it, or a failover has lost it.
            self._deliveries.drop(delivery)
