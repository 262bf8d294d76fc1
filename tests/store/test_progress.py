"""The specification of note: what a running job says of itself is kept while its delivery counts."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver

from qbull.core.progress import Progress
from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.progress import JobUpdate


def said(
    delivery: Delivery, *lines: str, at: int = 0, told: int = 0, progress: float | None = None
) -> JobUpdate:
    reported = None if progress is None else Progress(progress)
    return JobUpdate(delivery.job(at).id, delivery.position, delivery.lane, reported, 1, told, lines)


async def logged(driver: PartitionDriver, id: str) -> list[str]:
    return [line.text for line in await driver.partition.logs(id)]


async def progress_of(driver: PartitionDriver, id: str) -> float | None:
    found = await inspect.find(driver.partition, id)
    assert found is not None
    return None if found.progress is None else found.progress.percent


async def test_what_a_job_says_is_kept(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    await driver.partition.update_jobs([said(delivery, "one", "two words\nand a line", progress=12.5)])

    assert await logged(driver, "a") == ["one", "two words\nand a line"]
    assert await progress_of(driver, "a") == 12.5
    await driver.finish(delivery)


async def test_a_call_that_is_sent_twice_keeps_each_line_once(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    for note in (
        said(delivery, "1", "2"),
        said(delivery, "1", "2"),
        said(delivery, "2", "3", told=1),
        said(delivery, "4", told=3),
    ):
        await driver.partition.update_jobs([note])

    assert await logged(driver, "a") == ["1", "2", "3", "4"]
    await driver.finish(delivery)


async def test_another_delivery_counts_its_lines_anew(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (first,) = await driver.fetch()
    await driver.partition.update_jobs([said(first, "1", "2")])
    await driver.settle(first, 0, "delay", 0)
    (second,) = await driver.fetch()

    await driver.partition.update_jobs([said(second, "3")])

    assert await logged(driver, "a") == ["1", "2", "3"]
    await driver.finish(second)


async def test_a_zombie_says_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", CRASHED, [])
    (new,) = await driver.fetch("other")

    await driver.partition.update_jobs([said(old, "still here", progress=1)])

    assert await logged(driver, "a") == []
    assert await progress_of(driver, "a") is None
    await driver.finish(new)


async def test_the_jobs_of_a_train_say_what_they_have_to_say_while_it_counts(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch("w")
    await driver.partition.update_jobs([said(train, "one", at=0)])
    await driver.settle(train, 0, "done")

    await driver.partition.update_jobs([said(train, "two", at=1, progress=2)])
    await driver.partition.reclaim("w", CRASHED, [])
    await driver.partition.update_jobs([said(train, "three", at=2)])

    assert [await logged(driver, id) for id in ("a1", "a2", "a3")] == [["one"], ["two"], []]
    assert await driver.run_all() == ["a2", "a3"]


async def test_what_has_ended_says_nothing_more(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)

    await driver.partition.update_jobs([said(delivery, "late", progress=3)])

    assert await logged(driver, "a") == []
    assert await store.server.call("EXISTS", driver.partition.base + "extras") == 0
