"""Results: be told when a job has finished, without asking again and again.

One subscription serves all who wait in this process. A mark in the partition tells the settle script that somebody
waits; without it, nothing is published.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qbull.errors import ServerError
from qbull.store.partition import Partition
from qbull.store.store import Store

A = TypeVar("A")

MARK = 60
"""Seconds for which a mark holds. Whoever still waits after half of it sets it again, and looks."""


class Results:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._up = asyncio.Event()

    async def until(
        self, partition: Partition, id: str, look: Callable[[], Awaitable[A | None]], timeout: float | None
    ) -> A | None:
        """What `look` finds, as soon as it finds something; None after `timeout` seconds."""
        found = await look()
        if found is not None:
            return found
        event = asyncio.Event()
        name = (partition.base, id)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._waiting[name].add(event)
                    await self._store.patiently(lambda: self._expect(partition))
                    found = await look()
                    if found is not None:
                        return found
                    await self._told(event)
                    event.clear()
        except TimeoutError:
            return await look()
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None

    async def _expect(self, partition: Partition) -> None:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await self._up.wait()
        await self._store.server.call("SET", partition.base + "waiters", "1", "EX", MARK)

    async def _told(self, event: asyncio.Event) -> None:
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait([waiting], timeout=MARK / 2)
        finally:
            waiting.cancel()

    async def _listen(self) -> None:
        while True:
            try:
                async for _, message in self._store.server.listen(self._store.names.done):
                    base, *ids = message.decode("utf-8", "replace").split("\n")
                    if (
                        not base
                    ):  # the subscription stands, perhaps anew: something may have been said meanwhile
                        self._up.set()
                        self._wake(list(self._waiting))
                    self._wake([(base, id) for id in ids])
            except ServerError:
                await asyncio.sleep(0.2)

    def _wake(self, names: list[tuple[str, str]]) -> None:
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()
