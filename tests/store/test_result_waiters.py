"""The specification of waiting for results: no end is missed, and few calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from partition_driver import PartitionDriver

from qbull.store.completions import MARK_REFRESH_SECONDS, ResultListener
from qbull.store.read import inspect
from qbull.store.read.inspect import StoredJob
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


@pytest.fixture
async def listener(store: Store) -> AsyncIterator[ResultListener]:
    listener = ResultListener(store)
    yield listener
    await listener.close()


class Looks:
    """Looks for a job, counts that, and may let something happen right after a look."""

    def __init__(self, driver: PartitionDriver, id: str) -> None:
        self._driver = driver
        self._id = id
        self.count = 0
        self.waiting = asyncio.Event()
        self.settle_after: int | None = None

    async def __call__(self) -> tuple[Partition, StoredJob]:
        self.count += 1
        found = await inspect.find(self._driver.partition, self._id)
        assert found is not None
        if self.count == self.settle_after:
            await finish_all(self._driver)
        self.waiting.set()
        return self._driver.partition, found


async def finish_all(driver: PartitionDriver) -> None:
    for delivery in await driver.fetch():
        await driver.finish(delivery)


async def test_several_jobs_are_found_in_one_call(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", payload=b'"first"')
    await driver.enqueue("b", when=60_000)

    found = await inspect.find_all(driver.partition, ["b", "nobody", "a", "a"])

    assert [job and (job.id, job.state) for job in found] == [
        ("b", "delayed"),
        None,
        ("a", "waiting"),
        ("a", "waiting"),
    ]


@pytest.mark.parametrize(("is_marked", "settle_after"), [(True, 1), (False, 1), (False, 2)])
async def test_a_job_that_ends_right_after_a_look_is_noticed(
    store: Store, listener: ResultListener, is_marked: bool, settle_after: int
) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    looks = Looks(driver, "a")
    looks.settle_after = settle_after
    if is_marked:
        await listener._announce(driver.partition)

    async with asyncio.timeout(10):
        found = await listener.wait_for("a", looks, None)

    assert found.state == "completed"


async def test_a_mark_that_another_waiter_sets_after_the_look_is_too_late(
    store: Store, listener: ResultListener
) -> None:
    driver, other = await PartitionDriver.open(store), await PartitionDriver.open(store, name="other")
    await driver.enqueue("a")
    await listener._announce(other.partition)  # It listens: a new subscription would wake up all waiters.
    looks = Looks(driver, "a")

    async def look() -> tuple[Partition, StoredJob]:
        there = await looks()
        if looks.count == 1:
            await finish_all(driver)
            await listener._announce(driver.partition)
        return there

    async with asyncio.timeout(10):
        found = await listener.wait_for("a", look, None)

    assert found.state == "completed"


async def test_a_waiter_looks_once_before_it_waits_and_once_afterwards(
    store: Store, listener: ResultListener
) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await listener._announce(driver.partition)
    looks = Looks(driver, "a")
    waiting = asyncio.ensure_future(listener.wait_for("a", looks, None))
    await looks.waiting.wait()

    await finish_all(driver)

    async with asyncio.timeout(10):
        assert (await waiting).state == "completed"
    assert looks.count == 2


async def test_an_old_mark_is_renewed_before_somebody_relies_on_it(
    store: Store, listener: ResultListener
) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    await listener._announce(driver.partition)
    await store.server.call("DEL", driver.partition.base + "waiters")
    listener._marked[driver.partition.base] -= MARK_REFRESH_SECONDS
    looks = Looks(driver, "a")
    waiting = asyncio.ensure_future(listener.wait_for("a", looks, None))
    while looks.count < 2:
        await asyncio.sleep(0)

    await finish_all(driver)

    async with asyncio.timeout(10):
        assert (await waiting).state == "completed"


async def test_a_result_that_does_not_come_is_given_up(store: Store, listener: ResultListener) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")

    found = await listener.wait_for("a", Looks(driver, "a"), 0.01)

    assert found.ending is None and listener._waiting == {}
