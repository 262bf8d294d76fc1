"""The specification of note: what a running job says of itself is kept while its delivery counts."""

from __future__ import annotations

from desk import CRASHED, Desk

from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.progress import JobUpdate


def said(
    delivery: Delivery, *lines: str, at: int = 0, told: int = 0, progress: float | None = None
) -> JobUpdate:
    return JobUpdate(delivery.job(at).id, delivery.place, delivery.lane, progress, 1, told, lines)


async def logged(desk: Desk, id: str) -> list[str]:
    return [line.text for line in await desk.partition.logs(id)]


async def progress_of(desk: Desk, id: str) -> float | None:
    found = await inspect.find(desk.partition, id)
    assert found is not None
    return found.progress


async def test_what_a_job_says_is_kept(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (delivery,) = await desk.fetch()

    await desk.partition.note([said(delivery, "one", "two words\nand a line", progress=12.5)])

    assert await logged(desk, "a") == ["one", "two words\nand a line"]
    assert await progress_of(desk, "a") == 12.5
    await desk.finish(delivery)


async def test_a_call_that_is_sent_twice_keeps_each_line_once(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (delivery,) = await desk.fetch()

    for note in (
        said(delivery, "1", "2"),
        said(delivery, "1", "2"),
        said(delivery, "2", "3", told=1),
        said(delivery, "4", told=3),
    ):
        await desk.partition.note([note])

    assert await logged(desk, "a") == ["1", "2", "3", "4"]
    await desk.finish(delivery)


async def test_another_delivery_counts_its_lines_anew(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (first,) = await desk.fetch()
    await desk.partition.note([said(first, "1", "2")])
    await desk.settle(first, 0, "delay", 0)
    (second,) = await desk.fetch()

    await desk.partition.note([said(second, "3")])

    assert await logged(desk, "a") == ["1", "2", "3"]
    await desk.finish(second)


async def test_a_zombie_says_nothing(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (old,) = await desk.fetch("zombie")
    await desk.partition.reclaim("zombie", CRASHED, [])
    (new,) = await desk.fetch("other")

    await desk.partition.note([said(old, "still here", progress=1)])

    assert await logged(desk, "a") == []
    assert await progress_of(desk, "a") is None
    await desk.finish(new)


async def test_the_jobs_of_a_train_say_what_they_have_to_say_while_it_counts(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await desk.fetch()
    await desk.finish(first)
    (train,) = await desk.fetch("w")
    await desk.partition.note([said(train, "one", at=0)])
    await desk.settle(train, 0, "done")

    await desk.partition.note([said(train, "two", at=1, progress=2)])
    await desk.partition.reclaim("w", CRASHED, [])
    await desk.partition.note([said(train, "three", at=2)])

    assert [await logged(desk, id) for id in ("a1", "a2", "a3")] == [["one"], ["two"], []]
    assert await desk.run_all() == ["a2", "a3"]


async def test_what_has_ended_says_nothing_more(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a")
    (delivery,) = await desk.fetch()
    await desk.finish(delivery)

    await desk.partition.note([said(delivery, "late", progress=3)])

    assert await logged(desk, "a") == []
    assert await store.server.call("EXISTS", desk.partition.base + "extras") == 0
