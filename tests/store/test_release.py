"""The specification of release: deliveries go back without an attempt, and only those that the worker has."""

from __future__ import annotations

from partition_driver import PartitionDriver, ids_of

from qbull.store.store import Store


async def test_a_released_delivery_comes_again(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch("mine")

    jobs = [await driver.partition.release("mine", [delivery.position]) for _ in range(2)]

    assert jobs == [1, 0], "sent again, it changes nothing"
    assert [ids_of(again) for again in await driver.fetch("other")] == [["a"]]


async def test_a_delivery_that_another_worker_has_by_now_stays_there(store: Store) -> None:
    """A failover has lost that it was fetched, and the new primary has delivered it to another worker."""
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    (first,) = await driver.fetch("mine")
    await forget_fetch(driver, first.position)
    (again,) = await driver.fetch("other")
    assert again.position == first.position

    assert await driver.partition.release("mine", [first.position]) == 0

    assert await driver.fetch("third") == []
    await driver.finish(again)
    (train,) = await driver.fetch("mine")
    await forget_fetch(driver, train.position)
    (taken,) = await driver.fetch("other")
    assert await driver.partition.release("mine", [train.position]) == 0
    await driver.finish(taken)


async def test_a_delivery_that_nobody_has_waits_for_the_next_worker(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch("mine")
    await forget_fetch(driver, delivery.position)

    assert await driver.partition.release("mine", [delivery.position]) == 0

    assert [again.position for again in await driver.fetch("other")] == [delivery.position]


async def forget_fetch(driver: PartitionDriver, position: bytes) -> None:
    """As a failover does that loses the fetch: the entry is there, and was delivered to nobody."""
    stream, entry = f"{driver.partition.base}ready:{position[:1].decode()}", position[1:]
    call = driver.store.server.call
    await call("XACK", stream, "workers", entry)
    before = entry.split(b"-")
    await call("XGROUP", "SETID", stream, "workers", b"%d-999999" % (int(before[0]) - 1))
