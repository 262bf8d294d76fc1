"""The specification of sleeping as an outcome: the job is delayed with the same attempt, and keeps its lane or leaves it."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes

LATER_MS = 4_000_000_000_000


async def suspend(
    driver: PartitionDriver, delivery: Delivery, at: int = 0, *, hold_lane: bool = True
) -> bool:
    outcomes, job = PartitionOutcomes(), delivery.job(at)
    outcomes.suspend(job.position, job.id, job.record, LATER_MS, hold_lane=hold_lane)
    return await driver.partition.settle(outcomes) == []


async def test_a_suspended_job_is_delayed_until_its_time(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    assert await suspend(driver, delivery)

    assert await driver.state("a") == "delayed"
    assert await store.server.call("ZSCORE", driver.partition.base + "delayed", "a") == b"4000000000000"
    assert (await driver.counts()).active == 0
    await driver.let_time_pass("a")
    assert (await driver.partition.promote()).moved == 1
    assert await driver.run_all() == ["a"]


async def test_a_worker_that_lost_its_delivery_suspends_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", CRASHED, [])

    assert not await suspend(driver, old)

    assert await driver.run_all() == ["a"]


async def test_a_call_that_is_sent_twice_suspends_once(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    assert await suspend(driver, delivery)
    assert not await suspend(driver, delivery)

    assert (await driver.counts()).delayed == 1


async def test_a_suspended_job_does_not_expire(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when="0 60000")
    (delivery,) = await driver.fetch()

    await suspend(driver, delivery)

    assert await store.server.call("ZCARD", driver.partition.base + "expiring") == 0


async def test_a_job_that_was_told_to_stop_does_not_sleep(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    assert await driver.cancel("a") == ["cancelling"]

    assert await suspend(driver, delivery)

    assert await driver.state("a") == "cancelled"


async def test_the_rest_of_a_train_waits_behind_a_job_that_holds_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    assert await suspend(driver, train)
    assert await driver.fetch() == []

    await driver.let_time_pass("a1")
    await driver.partition.promote()
    assert await driver.run_all() == ["a1", "a2", "a3"]


async def test_the_rest_of_a_train_passes_a_job_that_lets_it(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    assert await suspend(driver, first, hold_lane=False)
    (train,) = await driver.fetch()
    assert ids_of(train) == ["a1", "a2", "a3"]

    assert await suspend(driver, train, hold_lane=False)
    assert await driver.settle(train, 1, "done")
    assert await driver.settle(train, 2, "done")
    await driver.let_time_pass("a1", "a0")
    await driver.partition.promote()

    assert sorted(await driver.run_all()) == ["a0", "a1"]


async def test_the_last_job_of_a_train_lets_the_next_pass(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (last,) = await driver.fetch()
    await driver.enqueue("a2", key="a")

    assert await suspend(driver, last, hold_lane=False)

    assert await driver.run_all() == ["a2"]
    await driver.remove("a1")
