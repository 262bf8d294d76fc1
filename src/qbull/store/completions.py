"""Completions: wait for finished jobs without polling.

One subscription serves all waiters of this process. A mark in the partition tells the settle script that a
client waits; without it, nothing is published.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from qbull.errors import ServerError
from qbull.store.read.inspect import StoredJob
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition

WAITER_MARK_SECONDS = 60
"""Lifetime of a mark. A waiter renews it after half of that time, and checks the job."""
MARK_REFRESH_SECONDS = 15
"""Seconds after which a new waiter renews a mark. It then outlives the wait."""


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
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._marked: dict[str, float] = {}
        """When each partition got its mark, by the clock of this process."""
        self._listening: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._ends: set[EndListener] = set()

    async def wait_for(
        self, id: str, look: Callable[[], Awaitable[tuple[Partition, StoredJob]]], timeout: float | None
    ) -> StoredJob:
        """Wait until the job has finished, or for `timeout` seconds; returns the job as `look` finds it.

        Each look also returns the partition that the job is in. If its partition was marked before a look,
        the end of the job is not missed after it.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        with self._watching(id) as event:
            looked_at = time.monotonic()
            partition, found = await look()
            try:
                async with asyncio.timeout_at(deadline):
                    while found.ending is None:
                        if self._is_marked(partition, looked_at):
                            await _wait_notified(event)
                            event.clear()
                        else:
                            await self._store.retrying(partial(self._announce, partition))
                        looked_at = time.monotonic()
                        partition, found = await look()
                    return found
            except TimeoutError:
                return (await look())[1]

    @contextmanager
    def _watching(self, id: str) -> Iterator[asyncio.Event]:
        """Be notified when a job with this id ends. Jobs of several queues may have it."""
        event = asyncio.Event()
        self._waiting[id].add(event)
        try:
            yield event
        finally:
            self._waiting[id].discard(event)
            if not self._waiting[id]:
                del self._waiting[id]

    def _is_marked(self, partition: Partition, at: float) -> bool:
        """Whether the partition had its mark at this time, and still has it while a waiter waits."""
        marked_at = self._marked.get(partition.base)
        return marked_at is not None and marked_at <= at < marked_at + MARK_REFRESH_SECONDS

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
        self._marked[partition.base] = time.monotonic()

    async def _listen(self) -> None:
        while True:
            try:
                async for _, message in self._store.server.listen(self._store.names.done):
                    base, *ids = message.decode("utf-8", "replace").split("\n")
                    if not base:  # the subscription is active, perhaps again: messages may have been missed
                        self._up.set()
                        self._marked.clear()
                        self._wake(list(self._waiting))
                    self._wake(ids)
                    for ends in self._ends:
                        ends.notify(base)
            except ServerError:
                await asyncio.sleep(0.2)

    def _wake(self, ids: list[str]) -> None:
        for id in ids:
            for event in self._waiting.get(id, ()):
                event.set()


async def _wait_notified(event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(WAITER_MARK_SECONDS / 2):
            await event.wait()
