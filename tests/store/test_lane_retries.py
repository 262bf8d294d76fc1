"""In a lane without an order, a job that waits for its next attempt leaves its slot and returns to the head."""

from __future__ import annotations

import asyncio

import pytest
from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.config import Lane
from qbull.core.ids import new_token
from qbull.core.record import KEEPS_LANE_FLAG, Attempt, Body, holds_lane, repack
from qbull.store.delivery import Delivery
from qbull.store.read import inspect
from qbull.store.read.health import read_health
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes

HOUR = 3_600_000


async def open_lane(store: Store, limit: int, *ids: str) -> PartitionDriver:
    driver = await PartitionDriver.open(store, lane=Lane(limit=limit))
    await driver.enqueue(*ids, key="a")
    return driver


async def fetched(driver: PartitionDriver) -> list[str]:
    return [id for delivery in await driver.fetch() for id in ids_of(delivery)]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_job_that_waits_for_its_next_attempt_lets_another_of_its_lane_run(
    store: Store, limit: int
) -> None:
    ids = [f"a{n}" for n in range(2 * limit)]
    driver = await open_lane(store, limit, *ids)
    for delivery in await driver.fetch():
        await driver.settle(delivery, 0, "delay", HOUR)

    assert await fetched(driver) == ids[limit:]
    assert [await driver.state(id) for id in ids[:limit]] == ["delayed"] * limit


@pytest.mark.parametrize("way", ["promote", "promote_one"])
async def test_jobs_that_are_due_again_come_before_those_that_wait_in_the_lane(
    store: Store, way: str
) -> None:
    driver = await open_lane(store, 2, *(f"a{n}" for n in range(7)))
    for delivery in await driver.fetch():
        await driver.settle(delivery, 0, "delay", HOUR)
    running = await driver.fetch()

    if way == "promote":
        await driver.let_time_pass("a0", "a1")
        assert (await driver.partition.promote()).moved == 2
    else:
        for id in ("a1", "a0"):
            assert await driver.partition.promote_one(new_token(), id) == "promoted"

    assert await fetched(driver) == [], "the lane has two jobs outside already"
    for delivery in running:
        await driver.finish(delivery)
    assert await fetched(driver) == ["a0", "a1"]


async def test_a_job_that_is_due_again_runs_at_once_if_its_lane_has_room(store: Store) -> None:
    driver = await open_lane(store, 2, "a0", "a1")
    first, second = await driver.fetch()
    await driver.settle(first, 0, "delay", HOUR)
    await driver.let_time_pass("a0")
    await driver.partition.promote()

    assert await fetched(driver) == ["a0"]
    await driver.finish(second)


async def test_a_train_goes_on_without_the_job_that_waits(store: Store) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2", "a3", "a4")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    for at, word in enumerate(("done", "delay", "delay", "done")):
        assert await driver.settle(train, at, word, HOUR)

    ids = [f"a{n}" for n in range(1, 5)]
    assert [await driver.state(id) for id in ids] == ["completed", "delayed", "delayed", "completed"]
    await driver.let_time_pass("a2", "a3")
    await driver.partition.promote()
    assert await driver.run_all() == ["a2", "a3"]


@pytest.mark.parametrize("is_due", [False, True], ids=["still waits", "is back in the lane"])
async def test_a_train_that_is_read_again_has_only_the_jobs_that_are_not_settled(
    store: Store, is_due: bool
) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2", "a3")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()
    await driver.settle(train, 0, "delay", HOUR)
    if is_due:
        await driver.let_time_pass("a1")
        await driver.partition.promote()

    streams = await store.streams([driver.partition])
    (again,) = await store.fetch(streams, "w1", 100, None, again=True)

    assert ids_of(again) == ["a2", "a3"]
    await driver.finish(again)
    if is_due:
        assert await driver.run_all() == ["a1"]


async def test_outcomes_of_one_train_may_be_written_together(store: Store) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2", "a3")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()
    one, two, three = train.jobs()
    outcomes = PartitionOutcomes()
    outcomes.delay(one.position, one.id, one.record, HOUR)
    outcomes.done_in_train(two.position, two.id, two.record, b"")
    outcomes.park(three.position, three.id, three.record, "task")

    assert await driver.partition.settle(outcomes) == []

    assert [await driver.state(f"a{n}") for n in (1, 2, 3)] == ["delayed", "completed", "waiting"]


async def test_a_worker_that_dies_with_a_train_loses_nothing_of_it(store: Store) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2", "a3")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch("dead")
    await driver.settle(train, 0, "delay", HOUR)

    await driver.partition.reclaim("dead", CRASHED, [train.position])

    assert await driver.run_all() == ["a2", "a3"]
    await driver.let_time_pass("a1")
    await driver.partition.promote()
    assert await driver.run_all() == ["a1"]


async def test_a_job_that_retries_at_once_keeps_its_slot(store: Store) -> None:
    driver = await open_lane(store, 1, "a0", "a1")
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", 0)

    assert await fetched(driver) == ["a0"]


async def test_a_job_that_waits_for_the_rate_of_its_lane_keeps_its_slot(store: Store) -> None:
    """The others of the lane have no starts either: each would be fetched and put off."""
    driver = await open_lane(store, 1, "a0", "a1")
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "later", HOUR)

    assert await fetched(driver) == []


async def test_a_job_that_a_later_one_replaces_keeps_its_slot(store: Store) -> None:
    """As with Unique(mode="after"): the next one has newer arguments and must run last."""
    driver = await PartitionDriver.open(store, lane=Lane(limit=1))
    jobs = [driver.job(id, "a", reports=KEEPS_LANE_FLAG) for id in ("a0", "a1")]
    await driver.partition.enqueue(jobs)
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", HOUR)

    assert await fetched(driver) == []
    await driver.let_time_pass("a0")
    await driver.partition.promote()
    assert await driver.run_all() == ["a0", "a1"]


@pytest.mark.parametrize("verb", ["cancel", "remove"])
async def test_a_job_that_waits_for_its_next_attempt_can_be_withdrawn(store: Store, verb: str) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2")
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", HOUR)

    await getattr(driver, verb)("a0")

    assert await driver.run_all() == ["a1", "a2"]
    if verb == "cancel":
        await driver.enqueue("a3", "a4", key="a")
        assert await driver.retry("a0") == ["retried"]
        assert await driver.run_all() == ["a3", "a4", "a0"], "a cancelled job has no place in its lane"


async def test_a_job_that_was_told_to_stop_is_cancelled_and_its_train_goes_on(store: Store) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2", "a3")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()
    await driver.cancel("a1")

    assert await driver.settle(train, 0, "delay", HOUR)

    assert await driver.state("a1") == "cancelled"
    assert await fetched(driver) == []
    assert await driver.settle(train, 1, "done")
    assert await driver.settle(train, 2, "done")


async def test_a_retry_that_an_older_worker_has_recorded_runs_in_the_slot_that_it_holds(store: Store) -> None:
    older = await PartitionDriver.open(store, order="key")  # it kept the slot in any lane
    await older.enqueue("a0", "a1", key="a")
    (first,) = await older.fetch()
    await older.settle(first, 0, "delay", HOUR)
    found = await inspect.find(older.partition, "a0")
    assert found is not None and holds_lane(found.record)

    driver = await PartitionDriver.open(store, lane=Lane(limit=1))
    assert await fetched(driver) == []
    await driver.let_time_pass("a0")
    await driver.partition.promote()
    assert await driver.run_all() == ["a0", "a1"]


async def test_a_retry_of_this_worker_joins_the_end_if_an_older_one_promotes_it(store: Store) -> None:
    """An older worker admits it like any delayed job. The flag that it leaves in the record does no harm."""
    driver = await open_lane(store, 1, "a0", "a1", "a2")
    (first,) = await driver.fetch()
    await driver.settle(first, 0, "delay", HOUR)
    (second,) = await driver.fetch()
    index, delayed = driver.partition.base + "index", driver.partition.base + "delayed"
    place = await store.server.call("HGET", index, "a0")
    await store.server.call("ZREM", delayed, "a0")
    await store.server.call("HSET", index, "a0", b"l" + place[1:])
    await store.server.call("HINCRBY", driver.partition.base + "kept", "lanes", 1)
    lanes = driver.partition.base + "lanes"
    (lane,) = await store.server.call("HKEYS", lanes)
    await store.server.call("HINCRBY", lanes, lane, 1)
    await store.server.call("RPUSH", driver.partition.base.encode() + b"lane:" + lane, "a0")

    await driver.finish(second)
    (again,) = await driver.fetch()
    assert (ids_of(second), ids_of(again)) == (["a1", "a2"], ["a0"])
    await driver.settle(again, 0, "dead")
    assert await driver.retry("a0") == ["retried"]
    assert await driver.run_all() == ["a0"]


@pytest.mark.parametrize("min_age", [0.0, 0.001], ids=["to run", "to fail"])
async def test_a_parked_job_needs_room_in_its_lane_to_run_but_not_to_fail(
    store: Store, min_age: float
) -> None:
    driver = await open_lane(store, 1, "a0", "a1", "a2")
    (first,) = await driver.fetch()
    outcomes, job = PartitionOutcomes(), first.job(0)
    outcomes.park(job.position, job.id, job.record, "task")
    await driver.partition.settle(outcomes)
    (train,) = await driver.fetch()
    await asyncio.sleep(0.005)

    taken = await store.unpark(driver.partition, "w1", "task", 5, min_age=min_age)

    assert [ids_of(delivery) for delivery in taken] == ([["a0"]] if min_age else [])
    for delivery in (*taken, train):
        await driver.finish(delivery)
    assert await driver.run_all() == ([] if min_age else ["a0"])


async def test_health_counts_a_lane_only_if_all_its_slots_wait_for_a_retry(store: Store) -> None:
    driver = await open_lane(store, 2, "a0", "a1", "a2")
    first, second = await driver.fetch()

    await fail_once(driver, first)
    assert await blocked_lanes(store, driver) == []
    await fail_once(driver, second)

    assert await blocked_lanes(store, driver) == [1]


async def fail_once(driver: PartitionDriver, delivery: Delivery) -> None:
    """As an older worker records it: the job keeps its slot until its next attempt."""
    job, outcomes = delivery.job(0), PartitionOutcomes()
    history = [Attempt(1, 1_700_000_000_000, 1.0, "broken", "w1")]
    record = repack(job.record, Body("task", b"{}", "a", attempt=2, history=history))
    outcomes.postpone(job.position, job.id, record, HOUR)
    assert await driver.partition.settle(outcomes) == []


async def blocked_lanes(store: Store, driver: PartitionDriver) -> list[int]:
    """The number of jobs behind each lane that is blocked."""
    [queue] = (await read_health(store, [driver.settings])).facts.queues
    return [lane.behind for lane in queue.blocked]
