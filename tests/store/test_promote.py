"""The specification of promote: what is due goes to ready, on the server's clock."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.store.store import Store


async def test_nothing_is_promoted_early(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("later", when=60_000)

    moved, wait, _ = await driver.partition.promote()

    assert moved == 0
    assert wait is not None and 59 < wait <= 60.001
    assert await driver.fetch() == []


async def test_what_is_due_goes_to_ready_in_the_order_of_its_time(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    seconds, microseconds = await store.server.call("TIME")
    soon = int(seconds) * 1000 + int(microseconds) // 1000 + 50
    await driver.enqueue("second", when=f"@{soon + 3}")
    await driver.enqueue("first", when=f"@{soon + 1}")
    _, wait, _ = await driver.partition.promote(0)

    while wait is not None:
        _, wait, _ = await driver.partition.promote()

    assert [ids_of(delivery)[0] for delivery in await driver.fetch()] == ["first", "second"]


async def test_a_delayed_job_joins_the_end_of_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("late", key="a", when=3_600_000)
    await driver.enqueue("now", "then", key="a")

    await driver.let_time_pass("late")
    await driver.partition.promote()

    order = []
    while deliveries := await driver.fetch():
        for delivery in deliveries:
            await driver.finish(delivery)
            order += ids_of(delivery)
    assert order == ["now", "then", "late"]


async def test_a_retry_keeps_its_place_at_the_head_of_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", 3_600_000)
    assert await driver.fetch() == []

    await driver.let_time_pass("a1")
    await driver.partition.promote()

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a1"]]


async def test_a_bounded_number_is_promoted_at_a_time(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*(f"a{n}" for n in range(10)), when=3_600_000)
    await driver.let_time_pass(*(f"a{n}" for n in range(10)))

    moved, wait, _ = await driver.partition.promote(4)

    assert (moved, wait) == (4, 0)


@pytest.mark.parametrize("ids", [("a", "b"), ("b", "a")])
async def test_jobs_that_become_due_together_wake_the_promoter_up(store: Store, ids: tuple[str, str]) -> None:
    """Jobs with equal times are sorted by their ids: the first in the call need not be the first in the set."""
    driver = await PartitionDriver.open(store)
    async with aclosing(store.server.listen(store.names.bell)) as bell:
        await anext(bell)

        await driver.enqueue(*ids, when=20)

        heard = await asyncio.wait_for(anext(bell), 5)
        assert heard[1].endswith(b"\ndue")


async def test_a_job_that_is_due_later_than_others_wakes_nobody_up(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("soon", when=60_000)
    async with aclosing(store.server.listen(store.names.bell)) as bell:
        await anext(bell)

        await driver.enqueue("later", when=90_000)
        await driver.enqueue("sooner", when=30_000)

        heard = [(await asyncio.wait_for(anext(bell), 5))[1]]
        await store.server.call("PUBLISH", store.names.bell, "over")
        heard.append((await asyncio.wait_for(anext(bell), 5))[1])
        assert heard[0].endswith(b"\ndue") and heard[1] == b"over"
