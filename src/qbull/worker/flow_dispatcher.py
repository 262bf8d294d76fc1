"""The flow dispatcher: deliver the messages of flows to other partitions.

It serves the partitions that a worker reads, also while their queue is paused. A wake-up tells it of new
messages. In case a wake-up is lost, or the producer of a flow has died half-way, it also polls each partition
now and then. It asks again for dependencies too: a server that took over may have lost a message. A partition
that refuses a call, or whose server is unavailable, is tried again later; the others do not wait for it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from qbull.core.durability import Durability
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.flows import FlowStore
from qbull.store.verbs.partition import Partition
from qbull.worker.outage import Outage
from qbull.worker.polling import poll_pause

FLOW_POLL_SECONDS = 30.0
FLOW_RETRY_SECONDS = 1.0
"""Seconds after which a partition that has failed is tried again."""


class FlowDispatcher:
    """For one queue."""

    def __init__(self, store: Store, worker: str, durability: Durability | None, outage: Outage) -> None:
        self._worker = worker
        self._flows = FlowStore(store, durability)
        self._outage = outage
        self._partitions: dict[str, Partition] = {}
        self._due: dict[str, float] = {}
        self._next_poll_at = time.monotonic() + FLOW_POLL_SECONDS
        self._after: dict[str, int] = {}
        self._wake_up = asyncio.Event()

    def follow(self, partitions: list[Partition]) -> None:
        """Serve these partitions from now on."""
        new = {partition.base: partition for partition in partitions}
        for base in self._partitions.keys() - new.keys():
            self._outage.recovered(base)
        self._hurry(new.keys() - self._partitions.keys())
        self._partitions = new

    def on_wake_up(self, base: str) -> None:
        """A partition has messages; perhaps any of them, if `base` is empty."""
        self._hurry({base} & self._partitions.keys() if base else set(self._partitions))

    async def run(self) -> None:
        while True:
            self._wake_up.clear()
            if time.monotonic() >= self._next_poll_at:
                await self._poll_all()
            now = time.monotonic()
            for base in [base for base, at in self._due.items() if at <= now]:
                del self._due[base]
                if base in self._partitions:
                    await self._dispatch(self._partitions[base])
            wait = min([self._next_poll_at, *self._due.values()]) - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake_up.wait()

    def _hurry(self, bases: set[str]) -> None:
        if bases:
            self._due |= dict.fromkeys(bases, 0.0)
            self._wake_up.set()

    async def _dispatch(self, partition: Partition) -> None:
        try:
            again = await self._flows.dispatch(partition, self._worker)
        except ServerError as error:
            self._outage.failed(error, partition.base)
            again = FLOW_RETRY_SECONDS
        else:
            self._outage.recovered(partition.base)
        if again is not None:
            self._due.setdefault(partition.base, time.monotonic() + again)

    async def _poll_all(self) -> None:
        """Poll all partitions, less often if there are many, and ask for lost messages."""
        pause = poll_pause(FLOW_POLL_SECONDS, len(self._partitions), up_to=4)
        self._next_poll_at = time.monotonic() + pause
        self._hurry(set(self._partitions))
        for base, partition in list(self._partitions.items()):
            try:
                self._after[base] = await self._flows.recheck(partition, self._after.get(base, 0))
            except ServerError as error:
                self._outage.failed(error, base)
