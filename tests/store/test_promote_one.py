"""The specification of promote_one: a delayed job may run now, and keeps its place in its lane."""

from __future__ import annotations

from partition_driver import PartitionDriver, ids_of

from qbull.store.store import Store


async def test_a_delayed_job_may_run_now(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=60_000, priority=1)

    assert await driver.partition.promote_one("t", "a") == "promoted"

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a"]]


async def test_a_call_that_is_sent_twice_is_answered_alike(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=60_000)

    first = await driver.partition.promote_one("t", "a")
    second = await driver.partition.promote_one("t", "a")

    assert first == second == "promoted"
    assert len(await driver.fetch()) == 1


async def test_another_state_is_the_answer(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("active", "behind", key="a")
    (delivery,) = await driver.fetch()
    await driver.enqueue("waiting", "failed")
    await driver.fail("failed")

    words = [
        await driver.partition.promote_one("t", id) for id in ("active", "behind", "waiting", "failed", "no")
    ]

    assert words == ["active", "waiting", "waiting", "failed", "unknown"]
    await driver.finish(delivery)


async def test_a_retry_keeps_its_place_in_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)

    await driver.partition.promote_one("t", "a1")

    assert await driver.run_all() == ["a1", "a2"]


async def test_a_fresh_one_joins_the_end_of_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a3", key="a", when=60_000)
    await driver.enqueue("a1", "a2", key="a")

    await driver.partition.promote_one("t", "a3")

    assert await driver.run_all() == ["a1", "a2", "a3"]
