"""Courier: bring what flows have to say to other partitions.

For the partitions that a worker reads, also while their queue is paused. A bell rings when there is something; should it be lost, or whoever has
planted a part of a flow be dead, each partition is looked at now and then all the same. So are jobs that wait: a server that was replaced
may have lost what it was told.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from qbull.core.durability import Durability
from qbull.store.flows import Flows
from qbull.store.partition import Partition
from qbull.store.store import Store
from qbull.worker.outage import Outage

SAFETY = 30.0


class Courier:
    """For one queue."""

    def __init__(self, store: Store, worker: str, durability: Durability | None, outage: Outage) -> None:
        self._worker = worker
        self._flows = Flows(store, durability)
        self._outage = outage
        self._partitions: dict[str, Partition] = {}
        self._due: set[str] = set()
        self._look_at = time.monotonic() + SAFETY
        self._after: dict[str, int] = {}
        self._bell = asyncio.Event()

    def follow(self, partitions: list[Partition]) -> None:
        """These are read from now on."""
        new = {partition.base: partition for partition in partitions}
        self._due |= new.keys() - self._partitions.keys()
        self._partitions = new
        if self._due:
            self._bell.set()

    def heard(self, base: str) -> None:
        """There is something in a partition; perhaps in any, where none is named."""
        due = {base} & self._partitions.keys() if base else set(self._partitions)
        if due:
            self._due |= due
            self._bell.set()

    async def run(self) -> None:
        while True:
            self._bell.clear()
            if time.monotonic() >= self._look_at:
                await self._look()
            due, self._due = self._due, set()
            wait = self._look_at - time.monotonic()
            for partition in [self._partitions[base] for base in due if base in self._partitions]:
                again = await self._outage.survive(partial(self._flows.ship, partition, self._worker))
                if again is not None:
                    self._due.add(partition.base)
                    wait = min(wait, again)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._bell.wait()

    async def _look(self) -> None:
        """Look at all partitions, less often where there are many of them; and ask for what may have been lost."""
        self._look_at = time.monotonic() + SAFETY * max(len(self._partitions) / 4, 1)
        self._due |= self._partitions.keys()
        for base, partition in list(self._partitions.items()):
            after = self._after.get(base, 0)
            self._after[base] = await self._outage.survive(partial(self._flows.recheck, partition, after))
