"""A queue of several partitions in one process, and as many workers for it as are wanted."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import qbull
from conftest import eventually
from qbull.core.sharing import Sharing
from qbull.store.store import Store
from qbull.worker.worker import Worker


class PartitionedQueue:
    """The queue; `ran` has what each key's jobs did, in order."""

    def __init__(self, app: qbull.App, store: Store, partitions: int = 16) -> None:
        self.app = app
        self.store = store
        self.ran: dict[str, list[int]] = defaultdict(list)
        self.queue = app.queue("work", partitions=partitions, order="key", concurrency=4)

        @self.queue.task(key="{key}")
        async def step(key: str, n: int) -> None:
            await asyncio.sleep(0.001)
            self.ran[key].append(n)

        self.step = step

    @asynccontextmanager
    async def worker(self, sharing: Sharing | None = None) -> AsyncIterator[Worker]:
        worker = Worker(self.app._make_store, self.app._assignments(), sharing=sharing or Sharing())
        async with worker:
            yield worker

    async def held(self) -> dict[str, set[int]]:
        """What each worker reads, as the roster has it."""
        return {id: set(who.queues["work"].partitions) for id, who in (await self.store.workers()).items()}

    async def shares(self) -> list[list[int]]:
        return sorted(sorted(share) for share in (await self.held()).values())

    async def shared_out(self, *sizes: int) -> list[list[int]]:
        """Wait until the partitions are shared out like this, each to one worker."""

        async def look() -> list[list[int]] | None:
            shares = await self.shares()
            covered = sorted(p for share in shares for p in share) == list(
                range(self.queue.settings.partitions)
            )
            return shares if covered and sorted(map(len, shares)) == sorted(sizes) else None

        found: list[list[int]] = await eventually(look)
        return found


@pytest.fixture(name="shared")
def make_partitioned_queue(app: qbull.App, store: Store) -> PartitionedQueue:
    return PartitionedQueue(app, store)
