"""The specification of promote_one: a delayed job may run now, and keeps its place in its lane."""

from __future__ import annotations

from desk import Desk, ids_of

from qbull.store.store import Store


async def test_a_delayed_job_may_run_now(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", when=60_000, priority=1)

    assert await desk.partition.promote_one("t", "a") == "promoted"

    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a"]]


async def test_a_call_that_is_sent_twice_is_answered_alike(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", when=60_000)

    first = await desk.partition.promote_one("t", "a")
    second = await desk.partition.promote_one("t", "a")

    assert first == second == "promoted"
    assert len(await desk.fetch()) == 1


async def test_another_state_is_the_answer(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("active", "behind", key="a")
    (delivery,) = await desk.fetch()
    await desk.enqueue("waiting", "failed")
    await desk.fail("failed")

    words = [
        await desk.partition.promote_one("t", id) for id in ("active", "behind", "waiting", "failed", "no")
    ]

    assert words == ["active", "waiting", "waiting", "failed", "unknown"]
    await desk.finish(delivery)


async def test_a_retry_keeps_its_place_in_its_lane(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    (delivery,) = await desk.fetch()
    await desk.settle(delivery, 0, "delay", 60_000)

    await desk.partition.promote_one("t", "a1")

    assert await desk.run_all() == ["a1", "a2"]


async def test_a_fresh_one_joins_the_end_of_its_lane(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a3", key="a", when=60_000)
    await desk.enqueue("a1", "a2", key="a")

    await desk.partition.promote_one("t", "a3")

    assert await desk.run_all() == ["a1", "a2", "a3"]
