"""The specification of cancel: what waits is cancelled at once, what a worker has is marked and goes on nowhere else."""

from __future__ import annotations

import pytest
from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.config import Keep, Lane
from qbull.store.read import inspect
from qbull.store.store import Store


async def a_train(driver: PartitionDriver, *ids: str) -> None:
    """These wait as one train."""
    await driver.enqueue("first", *ids, key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)


@pytest.mark.parametrize("when", [0, 60_000])
async def test_a_job_that_waits_or_is_delayed_is_cancelled(store: Store, when: int) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=when)

    assert await driver.cancel("a") == ["cancelled"]

    found = await inspect.find(driver.partition, "a")
    assert found is not None
    assert found.ending is not None
    assert (found.state, found.ending.error) == ("cancelled", "not wanted")
    assert await driver.fetch() == []
    assert (await driver.counts()).cancelled == 1
    assert (await driver.counts()).totals["cancelled"] == 1


async def test_what_is_cancelled_twice_is_answered_alike(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b")
    (delivery, _) = await driver.fetch()

    words = [await driver.cancel("a", "a"), await driver.cancel("a")]

    assert words == [["cancelling", "cancelling"], ["cancelling"]]
    await driver.settle(delivery, 0, "cancel")
    assert await driver.cancel("a") == ["cancelled"]


async def test_what_has_ended_stays_as_it_is(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("done", "dead")
    await driver.fail("dead")
    await driver.run_all()

    assert await driver.cancel("done", "dead", "nobody") == ["completed", "failed", "unknown"]


async def test_the_next_of_its_lane_is_let_on(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", key="a")

    await driver.cancel("a1", "a3")

    assert await driver.run_all() == ["a2"]


async def test_one_of_a_train_that_waits_is_passed_over(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await a_train(driver, "a1", "a2", "a3")

    assert await driver.cancel("a2") == ["cancelled"]

    assert await driver.run_all() == ["a1", "a3"]


async def test_a_retry_that_holds_its_lane_lets_it_go(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)

    await driver.cancel("a1")

    assert await driver.run_all() == ["a2"]


async def test_a_place_in_a_lane_with_a_limit_is_free_again(store: Store) -> None:
    driver = await PartitionDriver.open(store, lane=Lane(limit=2))
    await driver.enqueue("a1", "a2", "a3", key="a")

    await driver.cancel("a1")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a2"], ["a3"]]


async def test_what_a_worker_has_is_marked_until_it_ends(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("stopped", "done", "dead")
    deliveries = {ids_of(delivery)[0]: delivery for delivery in await driver.fetch()}

    assert await driver.cancel(*deliveries) == ["cancelling"] * 3
    marks = {mark.id.decode(): (mark.position, mark.reason) for mark in await driver.partition.cancel_marks()}
    for id, word in (("stopped", "cancel"), ("done", "done"), ("dead", "dead")):
        await driver.settle(deliveries[id], 0, word)

    assert marks == {id: (delivery.position, "not wanted") for id, delivery in deliveries.items()}
    assert await driver.marked() == set()
    assert [await driver.state(id) for id in deliveries] == ["cancelled", "completed", "failed"]


async def test_a_marked_job_has_no_next_attempt(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.cancel("a1")

    assert await driver.settle(delivery, 0, "delay", 60_000)

    assert await driver.state("a1") == "cancelled"
    assert await driver.run_all() == ["a2"]


async def test_a_marked_job_of_a_train_has_no_next_attempt(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await a_train(driver, "a1", "a2", "a3", "a4")
    (train,) = await driver.fetch()
    assert await driver.cancel("a1", "a3") == ["cancelling"] * 2

    assert await driver.settle(train, 0, "delay", 60_000)

    assert [await driver.state(id) for id in ("a1", "a3")] == ["cancelled", "cancelled"]
    assert await driver.run_all() == ["a2", "a4"]


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize("way", ["release", "reclaim"])
async def test_a_marked_job_that_comes_back_is_cancelled(store: Store, way: str, order: str | None) -> None:
    driver = await PartitionDriver.open(store, order=order)
    await driver.enqueue("a1", "a2", key="a")
    deliveries = await driver.fetch("w")
    await driver.cancel("a1")

    if way == "release":
        await driver.partition.release("w", [delivery.position for delivery in deliveries])
    else:
        await driver.partition.reclaim("w", CRASHED, [delivery.position for delivery in deliveries])

    assert await driver.state("a1") == "cancelled"
    assert await driver.marked() == set()
    assert await driver.run_all() == ["a2"]


@pytest.mark.parametrize("gone", ["a1", "a2", "a3", "a1 a2", "a2 a3", "a1 a2 a3"])
@pytest.mark.parametrize("way", ["release", "reclaim"])
async def test_marked_jobs_of_a_train_that_comes_back_are_cancelled(
    store: Store, way: str, gone: str
) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await a_train(driver, "a1", "a2", "a3")
    await driver.enqueue("a4", key="a")
    (train,) = await driver.fetch("w")
    await driver.cancel(*gone.split())

    if way == "release":
        await driver.partition.release("w", [train.position])
    else:
        await driver.partition.reclaim("w", CRASHED, [train.position])

    assert [await driver.state(id) for id in gone.split()] == ["cancelled"] * len(gone.split())
    assert await driver.marked() == set()
    assert await driver.run_all() == [id for id in ("a1", "a2", "a3", "a4") if id not in gone]


async def test_a_zombie_does_not_take_a_mark_away(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", CRASHED, [])
    (new,) = await driver.fetch("other")
    await driver.cancel("a")

    assert not await driver.settle(old, 0, "done")
    assert not await driver.settle(old, 0, "delay")

    assert await driver.marked() == {"a"}
    assert await driver.settle(new, 0, "cancel")


async def test_the_rest_of_a_train_goes_on_after_a_cancelled_job(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await a_train(driver, "a1", "a2", "a3")
    (train,) = await driver.fetch()
    await driver.cancel("a2")

    words = [await driver.settle(train, at, word) for at, word in enumerate(["done", "cancel", "done"])]

    assert words == [True, True, True]
    assert (await driver.counts()).unfinished == 0


async def test_cancelled_jobs_are_kept_like_failed_ones(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(failed=2))
    await driver.enqueue(*"abcde")

    await driver.cancel(*"abcde")

    assert (await driver.counts()).cancelled == 2
    assert [await driver.state(id) for id in "abcde"] == [None, None, None, "cancelled", "cancelled"]


async def test_a_cancelled_job_runs_again_when_it_is_retried(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    await driver.cancel("a1")

    assert await driver.retry("a1") == ["retried"]

    assert await driver.run_all() == ["a2", "a1"]
    assert (await driver.counts()).cancelled == 0
