"""Completions: wait for finished jobs without polling.

One subscription serves all waiters of this process. A mark in the partition tells the settle script that a
client waits; without it, nothing is published.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from qbull.errors import ServerError
from qbull.store.read.inspect import StoredJob
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition

WAITER_MARK_SECONDS = 60
"""Lifetime of a mark. A waiter renews it after half of that time, and checks the job."""


class EndListener:
    """Is notified when any job of the watched partitions ends."""

    def __init__(self, expect: Callable[[Partition], Awaitable[None]]) -> None:
        self.bases: dict[str, float] = {}
        self._watch = expect
        self._notified = asyncio.Event()

    async def watch(self, partition: Partition) -> None:
        """Watch a partition. Call again before half of the mark's lifetime is over."""
        now = time.monotonic()
        if now - self.bases.get(partition.base, -WAITER_MARK_SECONDS) >= WAITER_MARK_SECONDS / 2:
            await self._watch(partition)
            self.bases[partition.base] = now

    def notify(self, base: str) -> None:
        if not base or base in self.bases:
            self._notified.set()

    def clear(self) -> None:
        self._notified.clear()

    async def wait(self) -> None:
        await self._notified.wait()


class ResultListener:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._ends: set[EndListener] = set()

    async def wait_for(
        self, id: str, look: Callable[[], Awaitable[tuple[Partition, StoredJob]]], timeout: float | None
    ) -> StoredJob:
        """Wait until the job has finished, or for `timeout` seconds; returns the job as `look` finds it.

        Each look also returns the partition that the job is in.
        """
        partition, found = await look()
        event = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                while found.ending is None:
                    with self._watching(partition, id, event):
                        await self._store.retrying(partial(self._announce, partition))
                        before = partition
                        partition, found = await look()
                        if found.ending is None and partition.base == before.base:
                            await self._wait_notified(event)
                            event.clear()
                return found
        except TimeoutError:
            return (await look())[1]

    @contextmanager
    def _watching(self, partition: Partition, id: str, event: asyncio.Event) -> Iterator[None]:
        name = (partition.base, id)
        self._waiting[name].add(event)
        try:
            yield
        finally:
            self._waiting[name].discard(event)
            if not self._waiting[name]:
                del self._waiting[name]

    @contextmanager
    def ends(self) -> Iterator[EndListener]:
        """Listen for ended jobs until the block ends."""

        async def expect(partition: Partition) -> None:
            await self._store.retrying(partial(self._announce, partition))

        ends = EndListener(expect)
        self._ends.add(ends)
        try:
            yield ends
        finally:
            self._ends.discard(ends)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None

    async def _announce(self, partition: Partition) -> None:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await self._up.wait()
        await self._store.server.script("set_flag", partition.base + "waiters", WAITER_MARK_SECONDS)

    async def _wait_notified(self, event: asyncio.Event) -> None:
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait([waiting], timeout=WAITER_MARK_SECONDS / 2)
        finally:
            waiting.cancel()

    async def _listen(self) -> None:
        while True:
            try:
                async for _, message in self._store.server.listen(self._store.names.done):
                    base, *ids = message.decode("utf-8", "replace").split("\n")
                    if not base:  # the subscription is active, perhaps again: messages may have been missed
                        self._up.set()
                        self._wake(list(self._waiting))
                    self._wake([(base, id) for id in ids])
                    for ends in self._ends:
                        ends.notify(base)
            except ServerError:
                await asyncio.sleep(0.2)

    def _wake(self, names: list[tuple[str, str]]) -> None:
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()
