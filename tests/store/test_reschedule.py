"""The specification of reschedule: a job that has not started gets another due time, in one step."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.store.read import inspect
from qbull.store.store import Store

HOUR_MS = 3_600_000


async def due_ms(driver: PartitionDriver, id: str) -> int:
    found = await inspect.find(driver.partition, id)
    assert found is not None and found.due_ms is not None
    return found.due_ms


async def test_a_delayed_job_is_due_later_or_earlier(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=60_000)
    first = await due_ms(driver, "a")

    assert await driver.partition.reschedule("t1", "a", HOUR_MS) == "rescheduled delayed"
    later = await due_ms(driver, "a")
    assert await driver.partition.reschedule("t2", "a", 1000) == "rescheduled delayed"
    earlier = await due_ms(driver, "a")
    assert await driver.partition.reschedule("t3", "a", f"@{first}") == "rescheduled delayed"

    assert earlier < first < later
    assert await due_ms(driver, "a") == first
    assert await driver.fetch() == []


async def test_a_delayed_job_that_is_due_now_runs(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=60_000)

    assert await driver.partition.reschedule("t", "a", 0) == "rescheduled waiting"

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a"]]


async def test_a_waiting_job_is_delayed(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b", priority=3)

    assert await driver.partition.reschedule("t", "a", HOUR_MS) == "rescheduled delayed"

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["b"]]
    assert (await driver.counts()).delayed == 1


async def test_a_waiting_job_that_is_due_now_keeps_its_place(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", "c", key="k")

    words = [await driver.partition.reschedule(f"t{id}", id, 0) for id in ("a", "b")]

    assert words == ["rescheduled waiting"] * 2
    assert await driver.run_all() == ["a", "b", "c"]


@pytest.mark.parametrize("chosen", ["a", "b", "c"])
async def test_a_job_leaves_its_lane_and_joins_the_end_when_it_is_due(store: Store, chosen: str) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", "c", key="k")

    await driver.partition.reschedule("t1", chosen, HOUR_MS)
    others = [id for id in ("a", "b", "c") if id != chosen]
    assert await driver.run_all() == others
    await driver.enqueue("d", key="k")
    await driver.partition.reschedule("t2", chosen, 0)

    assert await driver.run_all() == ["d", chosen]


async def test_a_retry_keeps_its_place_in_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)

    assert await driver.partition.reschedule("t1", "a1", HOUR_MS) == "rescheduled delayed"
    assert await driver.fetch() == [], "the lane waits for its retry"
    assert await driver.partition.reschedule("t2", "a1", 0) == "rescheduled waiting"

    assert await driver.run_all() == ["a1", "a2"]


async def test_a_train_goes_on_without_a_job_that_is_delayed(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("first", "a", "b", "c", key="k")
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)

    assert await driver.partition.reschedule("t", "b", HOUR_MS) == "rescheduled delayed"

    assert await driver.run_all() == ["a", "c"]


async def test_a_call_that_is_sent_twice_is_answered_alike(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")

    first = await driver.partition.reschedule("t", "a", HOUR_MS)
    due = await due_ms(driver, "a")
    second = await driver.partition.reschedule("t", "a", HOUR_MS)

    assert first == second == "rescheduled delayed"
    assert await due_ms(driver, "a") == due


async def test_another_state_is_the_answer(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("active", "behind", key="a")
    (delivery,) = await driver.fetch()
    await driver.enqueue("failed")
    await driver.fail("failed")

    words = [
        await driver.partition.reschedule(f"t{id}", id, HOUR_MS)
        for id in ("active", "behind", "failed", "no")
    ]

    assert words == ["active", "rescheduled delayed", "failed", "unknown"]
    await driver.finish(delivery)
