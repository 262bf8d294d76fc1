"""The specification of cancel: what waits is cancelled at once, what a worker has is marked and goes on nowhere else."""

from __future__ import annotations

import pytest
from desk import CRASHED, Desk, ids_of

from qbull.config import Keep, Lane
from qbull.store.read import inspect
from qbull.store.store import Store


async def a_train(desk: Desk, *ids: str) -> None:
    """These wait as one train."""
    await desk.enqueue("first", *ids, key="a")
    (first,) = await desk.fetch()
    await desk.finish(first)


@pytest.mark.parametrize("when", [0, 60_000])
async def test_a_job_that_waits_or_is_delayed_is_cancelled(store: Store, when: int) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", when=when)

    assert await desk.cancel("a") == ["cancelled"]

    found = await inspect.find(desk.partition, "a")
    assert found is not None
    assert found.ending is not None
    assert (found.state, found.ending.error) == ("cancelled", "not wanted")
    assert await desk.fetch() == []
    assert (await desk.counts()).cancelled == 1
    assert (await desk.counts()).totals["cancelled"] == 1


async def test_what_is_cancelled_twice_is_answered_alike(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", "b")
    (delivery, _) = await desk.fetch()

    words = [await desk.cancel("a", "a"), await desk.cancel("a")]

    assert words == [["cancelling", "cancelling"], ["cancelling"]]
    await desk.settle(delivery, 0, "cancel")
    assert await desk.cancel("a") == ["cancelled"]


async def test_what_has_ended_stays_as_it_is(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("done", "dead")
    await desk.fail("dead")
    await desk.run_all()

    assert await desk.cancel("done", "dead", "nobody") == ["completed", "failed", "unknown"]


async def test_the_next_of_its_lane_is_let_on(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", "a3", key="a")

    await desk.cancel("a1", "a3")

    assert await desk.run_all() == ["a2"]


async def test_one_of_a_train_that_waits_is_passed_over(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await a_train(desk, "a1", "a2", "a3")

    assert await desk.cancel("a2") == ["cancelled"]

    assert await desk.run_all() == ["a1", "a3"]


async def test_a_retry_that_holds_its_lane_lets_it_go(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    (delivery,) = await desk.fetch()
    await desk.settle(delivery, 0, "delay", 60_000)

    await desk.cancel("a1")

    assert await desk.run_all() == ["a2"]


async def test_a_place_in_a_lane_with_a_limit_is_free_again(store: Store) -> None:
    desk = await Desk.open(store, lane=Lane(limit=2))
    await desk.enqueue("a1", "a2", "a3", key="a")

    await desk.cancel("a1")

    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a2"], ["a3"]]


async def test_what_a_worker_has_is_marked_until_it_ends(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("stopped", "done", "dead")
    deliveries = {ids_of(delivery)[0]: delivery for delivery in await desk.fetch()}

    assert await desk.cancel(*deliveries) == ["cancelling"] * 3
    marks = {mark.id.decode(): (mark.place, mark.reason) for mark in await desk.partition.marks()}
    for id, word in (("stopped", "cancel"), ("done", "done"), ("dead", "dead")):
        await desk.settle(deliveries[id], 0, word)

    assert marks == {id: (delivery.place, "not wanted") for id, delivery in deliveries.items()}
    assert await desk.marked() == set()
    assert [await desk.state(id) for id in deliveries] == ["cancelled", "completed", "failed"]


async def test_a_marked_job_has_no_next_attempt(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    (delivery,) = await desk.fetch()
    await desk.cancel("a1")

    assert await desk.settle(delivery, 0, "delay", 60_000)

    assert await desk.state("a1") == "cancelled"
    assert await desk.run_all() == ["a2"]


async def test_a_marked_job_of_a_train_has_no_next_attempt(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await a_train(desk, "a1", "a2", "a3", "a4")
    (train,) = await desk.fetch()
    assert await desk.cancel("a1", "a3") == ["cancelling"] * 2

    assert await desk.settle(train, 0, "delay", 60_000)

    assert [await desk.state(id) for id in ("a1", "a3")] == ["cancelled", "cancelled"]
    assert await desk.run_all() == ["a2", "a4"]


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize("way", ["release", "reclaim"])
async def test_a_marked_job_that_comes_back_is_cancelled(store: Store, way: str, order: str | None) -> None:
    desk = await Desk.open(store, order=order)
    await desk.enqueue("a1", "a2", key="a")
    deliveries = await desk.fetch("w")
    await desk.cancel("a1")

    if way == "release":
        await desk.partition.release([delivery.place for delivery in deliveries])
    else:
        await desk.partition.reclaim("w", CRASHED, [delivery.place for delivery in deliveries])

    assert await desk.state("a1") == "cancelled"
    assert await desk.marked() == set()
    assert await desk.run_all() == ["a2"]


@pytest.mark.parametrize("gone", ["a1", "a2", "a3", "a1 a2", "a2 a3", "a1 a2 a3"])
@pytest.mark.parametrize("way", ["release", "reclaim"])
async def test_marked_jobs_of_a_train_that_comes_back_are_cancelled(
    store: Store, way: str, gone: str
) -> None:
    desk = await Desk.open(store, order="key")
    await a_train(desk, "a1", "a2", "a3")
    await desk.enqueue("a4", key="a")
    (train,) = await desk.fetch("w")
    await desk.cancel(*gone.split())

    if way == "release":
        await desk.partition.release([train.place])
    else:
        await desk.partition.reclaim("w", CRASHED, [train.place])

    assert [await desk.state(id) for id in gone.split()] == ["cancelled"] * len(gone.split())
    assert await desk.marked() == set()
    assert await desk.run_all() == [id for id in ("a1", "a2", "a3", "a4") if id not in gone]


async def test_a_zombie_does_not_take_a_mark_away(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (old,) = await desk.fetch("zombie")
    await desk.partition.reclaim("zombie", CRASHED, [])
    (new,) = await desk.fetch("other")
    await desk.cancel("a")

    assert not await desk.settle(old, 0, "done")
    assert not await desk.settle(old, 0, "delay")

    assert await desk.marked() == {"a"}
    assert await desk.settle(new, 0, "cancel")


async def test_the_rest_of_a_train_goes_on_after_a_cancelled_job(store: Store) -> None:
    desk = await Desk.open(store, order="key", on_failed="halt")
    await a_train(desk, "a1", "a2", "a3")
    (train,) = await desk.fetch()
    await desk.cancel("a2")

    words = [await desk.settle(train, at, word) for at, word in enumerate(["done", "cancel", "done"])]

    assert words == [True, True, True]
    assert (await desk.counts()).unfinished == 0


async def test_cancelled_jobs_are_kept_like_failed_ones(store: Store) -> None:
    desk = await Desk.open(store, keep=Keep(failed=2))
    await desk.enqueue(*"abcde")

    await desk.cancel(*"abcde")

    assert (await desk.counts()).cancelled == 2
    assert [await desk.state(id) for id in "abcde"] == [None, None, None, "cancelled", "cancelled"]


async def test_a_cancelled_job_runs_again_when_it_is_retried(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    await desk.cancel("a1")

    assert await desk.retry("a1") == ["retried"]

    assert await desk.run_all() == ["a2", "a1"]
    assert (await desk.counts()).cancelled == 0
