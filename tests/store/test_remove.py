"""The specification of remove and clean: jobs go without a trace, and let others on."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.config import Lane
from qbull.store.store import Store


async def names(store: Store) -> set[str]:
    found = await store.server.call("KEYS", "{test:q:0}:*")
    return {
        name.decode().rpartition("}:")[2] for name in found if b"stats" not in name and b"once" not in name
    }


@pytest.mark.parametrize("word", ["waiting", "delayed", "completed", "failed"])
async def test_a_job_goes_without_a_trace(store: Store, word: str) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=60_000 if word == "delayed" else 0)
    if word in ("completed", "failed"):
        (delivery,) = await driver.fetch()
        await driver.partition.mark_isolated(b"a", delivery.position)
        await driver.settle(delivery, 0, "done" if word == "completed" else "dead")
    assert await driver.state("a") == word

    assert await driver.remove("a") == ["removed"]

    assert (await driver.counts()).total == 0
    assert not await names(store) & {"index", "parked", "delayed", "lanes", "job:a", "extras"}


async def test_a_call_that_is_sent_twice_is_answered_alike(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")

    first = await driver.partition.remove("token", [("a", b"")])
    await driver.enqueue("a")
    second = await driver.partition.remove("token", [("a", b"")])

    assert first == second == ["removed"]
    assert await driver.state("a") == "waiting"


async def test_what_a_worker_has_stays(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    assert await driver.remove("a") == ["active"]

    await driver.finish(delivery)


async def test_what_is_not_where_it_was_seen_stays(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    seen = await driver.fail_and_see("a")
    await driver.retry("a")

    words = await driver.partition.remove("t", [("a", seen.position), ("nobody", b"")])

    assert words == ["moved", "unknown"]
    assert await driver.state("a") == "waiting"


async def test_the_next_of_its_lane_is_let_on(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", "a4", key="a")

    await driver.remove("a1")
    (delivery,) = await driver.fetch()

    assert ids_of(delivery)[0] == "a2"


async def test_one_in_the_middle_of_its_lane_is_passed_over(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", "a4", key="a")

    await driver.remove("a3")

    assert await driver.run_all() == ["a1", "a2", "a4"]


async def test_a_retry_that_holds_its_lane_lets_it_go(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)

    await driver.remove("a1")

    assert await driver.run_all() == ["a2"]


async def test_a_dead_letter_that_halts_its_lane_lets_it_go_on(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a1", "a2", "a3", key="a")
    await driver.fail("a1")

    await driver.remove("a1")

    assert await driver.run_all() == ["a2", "a3"]


async def test_a_place_in_a_lane_with_a_limit_is_free_again(store: Store) -> None:
    driver = await PartitionDriver.open(store, lane=Lane(limit=2))
    await driver.enqueue("a1", "a2", "a3", key="a")

    await driver.remove("a1")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a2"], ["a3"]]


async def test_finished_jobs_are_cleaned_in_bounded_steps(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*(f"a{n}" for n in range(100)))
    for delivery in await driver.fetch():
        await driver.settle(delivery, 0, "done")

    first = await driver.partition.clean("t1", "completed", 0, 40)
    again = await driver.partition.clean("t1", "completed", 0, 40)
    young = await driver.partition.clean("t2", "completed", 3600, 40)

    assert first == again == (40, True)
    assert young == (0, False)
    assert (await driver.counts()).completed == 60


async def test_cleaning_takes_no_more_than_asked_out_of_a_bundle(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*"abcde")
    await driver.complete_together()

    cleaned = [await driver.partition.clean(f"t{n}", "completed", 0, 2) for n in range(3)]

    assert cleaned == [(2, True), (2, True), (1, False)]
    assert await store.server.call("XLEN", driver.partition.base + "completed") == 0


async def test_a_bundle_goes_with_the_last_of_its_jobs(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*"abc")
    await driver.complete_together()
    completed = driver.partition.base + "completed"

    lengths = [await store.server.call("XLEN", completed)]
    for ids in ("ac", "b"):
        await driver.remove(*ids)
        lengths.append(await store.server.call("XLEN", completed))

    assert lengths == [1, 1, 0]
    assert (await driver.counts()).completed == 0


async def test_cleaning_a_dead_letter_that_halts_its_lane_lets_it_go_on(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a1", "a2", key="a")
    await driver.fail("a1")

    await driver.partition.clean("t", "failed", 0, 10)

    assert await driver.run_all() == ["a2"]


async def test_one_of_a_train_that_waits_is_passed_over(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", "a4", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)

    assert await driver.remove("a3") == ["removed"]
    (train,) = await driver.fetch()

    assert ids_of(train) == ["a2", "a4"]
    await driver.finish(train)


@pytest.mark.parametrize("gone", ["a2 a3", "a4 a2", "a2 a3 a4"])
async def test_several_of_a_train_that_waits_go_together(store: Store, gone: str) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", "a4", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    await driver.enqueue("a5", key="a")

    assert set(await driver.remove(*gone.split())) == {"removed"}

    assert await driver.run_all() == [id for id in ("a2", "a3", "a4", "a5") if id not in gone]


async def test_one_of_a_train_that_a_worker_has_stays(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    assert await driver.remove("a2", "a3") == ["active", "active"]

    await driver.finish(train)
