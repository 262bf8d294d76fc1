"""The specification of take_over: a delivery that has not started goes from one worker to another."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.store.store import Store


async def test_the_taker_has_the_delivery_and_the_holder_has_it_no_more(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b")
    first, second = await driver.fetch("holder")

    assert await driver.partition.take_over(first.position, "holder", "taker")

    assert (await driver.partition.reclaim("holder", CRASHED, [])).deliveries == 1
    assert (await driver.partition.reclaim("taker", CRASHED, [])).deliveries == 1
    assert sorted(ids_of(delivery)[0] for delivery in await driver.fetch()) == ["a", "b"]
    assert not await driver.partition.holds(b"b", second.position, b"")


async def test_a_call_that_is_sent_again_gets_the_same_answer(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch("holder")

    answers = [await driver.partition.take_over(delivery.position, "holder", "taker") for _ in range(2)]

    assert answers == [True, True]
    assert await driver.partition.holds(b"a", delivery.position, b"")


async def test_a_delivery_of_another_worker_is_not_taken(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch("another")

    assert not await driver.partition.take_over(delivery.position, "holder", "taker")
    assert (await driver.partition.reclaim("another", CRASHED, [])).deliveries == 1


async def test_a_delivery_that_was_released_is_not_taken(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch("holder")
    await driver.partition.release("holder", [delivery.position])

    assert not await driver.partition.take_over(delivery.position, "holder", "taker")
    assert [ids_of(delivery)[0] for delivery in await driver.fetch("other")] == ["a"]


async def test_a_train_goes_as_a_whole(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("first", "a", "b", "c", key="k")
    (first,) = await driver.fetch("holder")
    await driver.finish(first)
    (train,) = await driver.fetch("holder")

    assert await driver.partition.take_over(train.position, "holder", "taker")

    assert (await driver.partition.reclaim("holder", CRASHED, [])).deliveries == 0
    assert (await driver.partition.reclaim("taker", CRASHED, [train.position])).deliveries == 1
    (again,) = await driver.fetch("other")
    assert ids_of(again) == ["a", "b", "c"]


async def test_a_partition_without_readers_has_nothing_to_take(store: Store) -> None:
    driver = await PartitionDriver.open(store)

    assert not await driver.partition.take_over(b"51-1", "holder", "taker")
