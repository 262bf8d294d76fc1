"""Repartition: finish a change of a queue's partition count, for the partitions that a worker reads.

Delayed jobs of an old partition move to their new one. A lane of a new partition starts when the older
partitions have no jobs of it. The worker that reads the first of the new partitions also takes the steps that
concern all of them. If there is nothing to do, no command is sent. If a step fails for one partition, the
others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.layout import Layout
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.move import PartitionMoves
from qbull.worker.outage import Outage

A = TypeVar("A")

HELD_LANES_POLL_SECONDS = 0.05
"""Seconds between two checks while lanes wait for older partitions."""
DRAINING_POLL_SECONDS = 0.5
"""Seconds between two checks while older partitions have unfinished jobs."""
RETAINED_POLL_SECONDS = 60.0
"""Seconds between two checks while older partitions only have finished jobs."""
MOVE_PAUSE_FACTOR = 5
"""After a check the mover pauses at least this many times as long as the check took."""


class PartitionMover:
    """Moves the jobs of one queue. `follow` tells it the layout and the partitions that its worker reads."""

    def __init__(
        self, store: Store, settings: QueueSettings, outage: Outage, durability: Durability | None = None
    ) -> None:
        self._names = store.names
        self._settings = settings
        self._outage = outage
        self._moves = PartitionMoves(store, settings, durability)
        self._layout = Layout()
        self._numbers: list[int] = []
        self._clear: set[int] = set()
        self._learnt = 0
        self._looked = 0.0
        self._rung = True
        self._failed = False
        self._wake_up = asyncio.Event()

    def follow(self, layout: Layout, numbers: list[int]) -> None:
        if (layout, numbers) != (self._layout, self._numbers):
            self._layout, self._numbers = layout, list(numbers)
            self._hurry_up()

    def on_wake_up(self, base: str) -> None:
        """A partition has jobs to move or lanes to free. An empty `base` means any partition."""
        mine = self._numbers
        if self._looks_after_all:
            mine = [number for older in self._layout.older for number in older.numbers] + mine
        if not base or any(base == self._names.partition(self._settings.name, number) for number in mine):
            self._hurry_up()

    async def run(self) -> None:
        while True:
            self._wake_up.clear()
            began = time.monotonic()
            wait = await self._outage.retry_until_up(self.tick)
            pause = (time.monotonic() - began) * MOVE_PAUSE_FACTOR
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait is None else max(wait, pause)):
                    await self._wake_up.wait()

    async def tick(self) -> float | None:
        """Take all steps that are possible now.

        Returns the seconds until the next check, or None if there is nothing to wait for.
        """
        layout, numbers = self._layout, self._numbers
        if layout.coming is not None:
            await self._moves.end_switch(layout)
            return DRAINING_POLL_SECONDS  # all workers were told, so this one will hear of it too
        if layout.generation == 0:
            return None
        if self._rung or time.monotonic() - self._looked >= DRAINING_POLL_SECONDS:
            self._rung, self._failed, self._looked = False, False, time.monotonic()
            await self._look_at_all(layout, numbers)
        looks = [
            await self._tried(partial(self._moves.free_lanes, layout, number))
            for number in numbers
            if number not in self._clear
        ]
        if not self._failed:
            self._outage.recovered(self)
        if any(look is not None and look.held for look in looks):
            return HELD_LANES_POLL_SECONDS
        if layout.draining or self._failed:
            return DRAINING_POLL_SECONDS
        return RETAINED_POLL_SECONDS if layout.older else None

    @property
    def _looks_after_all(self) -> bool:
        """Whether this worker takes the steps that concern all partitions. It does no harm if several do."""
        return self._layout.current.numbers[0] in self._numbers

    async def _look_at_all(self, layout: Layout, numbers: list[int]) -> None:
        for number in numbers:
            await self._tried(partial(self._look_at, layout, number))
        if not self._looks_after_all:
            return
        if self._learnt != layout.generation:
            await self._tried(partial(self._learn, layout))
        for older in layout.older:
            if older.state == "drained":  # a dead letter may have been redriven
                for number in older.numbers:
                    await self._tried(partial(self._moves.move_jobs, layout, number))
        await self._tried(partial(self._moves.retire, layout))

    async def _look_at(self, layout: Layout, number: int) -> None:
        if number not in self._clear and await self._moves.free_all_lanes(layout, number) is not None:
            self._clear.add(number)
        if number not in layout.current.numbers:
            await self._moves.move_jobs(layout, number)

    async def _learn(self, layout: Layout) -> None:
        await self._moves.announce_lanes(layout)
        self._learnt = layout.generation

    async def _tried(self, step: Callable[[], Awaitable[A]]) -> A | None:
        """The result of the step, or None if it failed. The next check tries it again."""
        try:
            return await step()
        except ServerError as error:
            self._failed = True
            self._outage.failed(error, self)
            return None

    def _hurry_up(self) -> None:
        self._rung = True
        self._wake_up.set()
