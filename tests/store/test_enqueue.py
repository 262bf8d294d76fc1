"""The specification of enqueue and admit."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.core.ids import new_token
from qbull.store.read import inspect
from qbull.store.store import Store


async def test_an_id_that_is_there_adds_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", payload=b'"first"')

    known = await driver.partition.enqueue([driver.job("a"), driver.job("b"), driver.job("b")])

    assert known == {0, 2}
    found = await inspect.find(driver.partition, "a")
    assert found is not None and found.body().payload == b'"first"'
    assert (await driver.counts()).waiting == 2


async def test_plain_jobs_are_put_as_they_would_be_enqueued(store: Store) -> None:
    put, enqueued = (
        await PartitionDriver.open(store, name="put"),
        await PartitionDriver.open(store, name="enqueued"),
    )
    jobs = [put.job(id, payload=id.encode()) for id in ("a", "b", "c")]

    assert await put.partition.put(jobs) == await enqueued.partition.enqueue(jobs) == set()

    for driver in (put, enqueued):
        counts = await driver.counts()
        assert (counts.waiting, counts.totals) == (3, {"enqueued": 3})
        assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a"], ["b"], ["c"]]
        found = await inspect.find(driver.partition, "b")
        assert found is not None and found.body().payload == b"b" and found.created_ms() > 0


async def test_a_batch_that_is_put_again_adds_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    jobs = [driver.job(id) for id in ("a", "b", "c")]
    await driver.partition.put(jobs)

    assert await driver.partition.put(jobs) == {0, 1, 2}

    assert (await driver.counts()).waiting == 3


@pytest.mark.parametrize("left", [("a",), ("b",), ("c",), ("a", "c")])
async def test_a_batch_of_which_some_have_left_is_looked_at_one_by_one(
    store: Store, left: tuple[str, ...]
) -> None:
    driver = await PartitionDriver.open(store)
    jobs = [driver.job(id) for id in ("a", "b", "c")]
    await driver.partition.put(jobs)
    places = [
        (id, found.position)
        for id in "abc"
        if (found := await inspect.find(driver.partition, id)) and id not in left
    ]
    assert await driver.partition.remove(new_token(), places) == ["removed"] * len(places)

    known = await driver.partition.put(jobs)

    assert known == {"abc".index(id) for id in left}
    assert (await driver.counts()).waiting == 3


async def test_the_server_says_when_a_job_was_enqueued(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    seconds, _ = await store.server.call("TIME")

    await driver.enqueue("a")

    found = await inspect.find(driver.partition, "a")
    assert found is not None
    created = found.info("q", 1).created_at.timestamp()
    assert 0 <= created - int(seconds) < 5


async def test_the_moment_of_enqueueing_survives_every_move(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", key="k")
    created = [(await inspect.find(driver.partition, id)).info("q", 1).created_at for id in ("a", "b")]

    (first,) = await driver.fetch("dead")
    await driver.partition.reclaim("dead", b"", [])
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", 3_600_000)
    await driver.let_time_pass("a")
    await driver.partition.promote()
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "dead")

    assert [
        (await inspect.find(driver.partition, id)).info("q", 1).created_at for id in ("a", "b")
    ] == created


async def test_one_job_of_a_lane_is_in_front_of_the_workers(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")

    await driver.enqueue("a1", "a2", "a3", key="a")
    await driver.enqueue("b1", key="b")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a1"], ["b1"]]
    assert [await driver.state(id) for id in ("a1", "a2", "a3")] == ["active", "waiting", "waiting"]


async def test_jobs_without_a_key_are_in_no_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")

    await driver.enqueue("a", "b")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a"], ["b"]]


async def test_the_most_urgent_band_is_handed_over_first(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    for id, priority in (("last", 10), ("usual", 5), ("first", 1)):
        await driver.enqueue(id, priority=priority)

    deliveries = await driver.fetch()

    assert [ids_of(delivery)[0] for delivery in deliveries] == ["first", "usual", "last"]


async def test_a_moment_in_the_past_is_now(store: Store) -> None:
    driver = await PartitionDriver.open(store)

    await driver.enqueue("a", when="@1000")

    assert await driver.state("a") == "waiting"


async def test_scripts_are_loaded_again_when_the_server_forgot_them(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")

    await store.server.call("SCRIPT", "FLUSH")
    await driver.enqueue("b")

    assert (await driver.counts()).waiting == 2


async def test_however_many_wait_none_falls_out(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    for some in range(5):
        await driver.partition.put([driver.job(f"{some}-{n}") for n in range(200)])

    assert len(await driver.fetch(count=2000)) == 1000
