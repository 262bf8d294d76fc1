"""The specification of promote: what is due goes to ready, on the server's clock."""

from __future__ import annotations

from desk import Desk, ids_of

from qbull.store.store import Store


async def test_nothing_is_promoted_early(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("later", when=60_000)

    moved, wait, _ = await desk.partition.promote()

    assert moved == 0
    assert wait is not None and 59 < wait <= 60.001
    assert await desk.fetch() == []


async def test_what_is_due_goes_to_ready_in_the_order_of_its_time(store: Store) -> None:
    desk = await Desk.open(store)
    seconds, microseconds = await store.server.call("TIME")
    soon = int(seconds) * 1000 + int(microseconds) // 1000 + 50
    await desk.enqueue("second", when=f"@{soon + 3}")
    await desk.enqueue("first", when=f"@{soon + 1}")
    _, wait, _ = await desk.partition.promote(0)

    while wait is not None:
        _, wait, _ = await desk.partition.promote()

    assert [ids_of(delivery)[0] for delivery in await desk.fetch()] == ["first", "second"]


async def test_a_delayed_job_joins_the_end_of_its_lane(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("late", key="a", when=3_600_000)
    await desk.enqueue("now", "then", key="a")

    await desk.let_time_pass("late")
    await desk.partition.promote()

    order = []
    while deliveries := await desk.fetch():
        for delivery in deliveries:
            await desk.finish(delivery)
            order += ids_of(delivery)
    assert order == ["now", "then", "late"]


async def test_a_retry_keeps_its_place_at_the_head_of_its_lane(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", key="a")
    (first,) = await desk.fetch()
    await desk.settle(first, 0, "delay", 3_600_000)
    assert await desk.fetch() == []

    await desk.let_time_pass("a1")
    await desk.partition.promote()

    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a1"]]


async def test_a_bounded_number_is_promoted_at_a_time(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue(*(f"a{n}" for n in range(10)), when=3_600_000)
    await desk.let_time_pass(*(f"a{n}" for n in range(10)))

    moved, wait, _ = await desk.partition.promote(4)

    assert (moved, wait) == (4, 0)
