"""Settle: write down what became of each delivery.

The runner hands outcomes over; they leave in batches, one call at a time for each partition, and while one is
in flight the next ones gather. A write that fails is tried again while the worker lives. One that answers
"stale" is dropped on purpose: the job was reclaimed and belongs to another worker now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from qbull.store.partition import BATCH, Partition, Settlement
from qbull.worker.outage import Outage

log = logging.getLogger("qbull.worker")


class Settler:
    """For one partition. `settled` is told each place that has left this worker's hands."""

    def __init__(
        self, partition: Partition, outage: Outage, settled: Callable[[Partition, bytes], None]
    ) -> None:
        self._partition = partition
        self._outage = outage
        self._settled = settled
        self._waiting: list[Settlement] = []
        self._halts = partition.settings.on_failed == "halt"
        self._sending: asyncio.Task[None] | None = None

    def add(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    def leaves(self, settlement: Settlement) -> bool:
        """Does the delivery end with this job? Where it must wait, or halts its lane, the rest goes back behind it."""
        return (
            settlement.last == "1"
            or settlement.word == "delay"
            or (settlement.word == "dead" and self._halts)
        )

    async def flush(self) -> None:
        """Wait until everything that was handed over is written down."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                tries = 0

                async def call(batch: list[Settlement] = batch) -> set[int]:
                    nonlocal tries
                    tries += 1
                    return await self._partition.settle(batch)

                stale = await self._outage.survive(call)
                if stale and tries == 1:
                    self._say_stale([batch[position] for position in stale])
                for settlement in batch:
                    if self.leaves(settlement):
                        self._settled(self._partition, settlement.place)
        finally:
            self._sending = None
            if self._waiting:  # cancelled, or handed over in the last moment
                self._sending = asyncio.get_running_loop().create_task(self._send())

    def _say_stale(self, refused: list[Settlement]) -> None:
        for settlement in refused:
            log.warning(
                'queue "%s": job %s was taken over by another worker meanwhile; this outcome was refused',
                self._partition.settings.name,
                settlement.id.decode("utf-8", "replace"),
            )
