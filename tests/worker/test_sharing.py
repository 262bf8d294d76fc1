"""Workers share the partitions of a queue out among themselves, and lose and reorder nothing while they do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

import qbull
from conftest import eventually
from qbull.config import Sharing
from qbull.store.store import Store
from qbull.worker.worker import Worker


class Yard:
    """A queue of sixteen partitions, and as many workers as are wanted."""

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
        worker = Worker(self.app.make_store, self.app.assignments(), sharing=sharing or Sharing())
        async with worker:
            yield worker

    async def shares(self) -> list[list[int]]:
        return sorted(sorted(m.queues["work"].partitions) for m in (await self.store.workers()).values())

    async def shared_out(self, *sizes: int) -> list[list[int]]:
        """Wait until the partitions are shared out like this, each to one worker."""

        async def look() -> list[list[int]] | None:
            shares = await self.shares()
            covered = sorted(p for share in shares for p in share) == list(
                range(self.queue.settings.partitions)
            )
            return shares if covered and sorted(map(len, shares)) == sorted(sizes) else None

        found: list[list[int]] = await eventually(look, within=10)
        return found


@pytest.fixture
def yard(app: qbull.App, store: Store) -> Yard:
    return Yard(app, store)


async def test_each_of_eight_workers_holds_two_of_sixteen_partitions(yard: Yard) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(yard.worker())

        await yard.shared_out(*[2] * 8)


async def test_a_worker_that_joins_gets_its_share_and_one_that_stops_leaves_it(yard: Yard) -> None:
    async with yard.worker(), yard.worker():
        before = await yard.shared_out(8, 8)
        async with yard.worker():
            await yard.shared_out(5, 5, 6)

        after = await yard.shared_out(8, 8)
        assert len(after) == len(before)


async def test_more_workers_than_partitions_are_all_used(app: qbull.App, store: Store) -> None:
    yard = Yard(app, store, partitions=2)
    async with yard.worker(), yard.worker(), yard.worker(), yard.worker():

        async def all_read() -> bool:
            return [len(share) for share in await yard.shares()] == [1, 1, 1, 1]

        await eventually(all_read)


async def test_static_workers_read_what_the_formula_says(yard: Yard) -> None:
    async with (
        yard.worker(Sharing("static", instance=0, instances=2)),
        yard.worker(Sharing("static", instance=1, instances=2)),
    ):
        assert await yard.shared_out(8, 8) == [list(range(0, 16, 2)), list(range(1, 16, 2))]


async def test_leased_partitions_are_taken_up_to_the_number_and_kept(yard: Yard) -> None:
    some = Sharing("leased", most=6)
    async with yard.worker(some):
        async with yard.worker(some), yard.worker(some):
            await yard.shared_out(4, 6, 6)

        async def six() -> bool:
            return [len(share) for share in await yard.shares()] == [6]

        await eventually(six)


@pytest.mark.timeout(120)
async def test_order_and_every_job_survive_workers_that_come_and_go(yard: Yard) -> None:
    keys, each = 40, 30
    stack = AsyncExitStack()
    async with stack:
        await stack.enter_async_context(yard.worker())
        sending = asyncio.create_task(
            yard.step.enqueue_many([{"key": f"k{k}", "n": n} for n in range(each) for k in range(keys)])
        )
        for _ in range(6):
            async with yard.worker():
                await asyncio.sleep(0.1)
        await sending

        async def empty() -> bool:
            return (await yard.queue.stats()).unfinished == 0

        await eventually(empty, within=60)

    assert len(yard.ran) == keys
    assert all(ran == list(range(each)) for ran in yard.ran.values())
