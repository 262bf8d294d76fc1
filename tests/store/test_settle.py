"""The specification of settle: completed, delayed, failed; lanes, trains and the fence."""

from __future__ import annotations

from partition_driver import PartitionDriver, ids_of

from qbull.config import Keep, Lane
from qbull.core.record import Ending, append_ending
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes


async def test_a_second_settle_of_the_same_delivery_is_refused(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()

    answers = [await driver.settle(delivery, 0, "done"), await driver.settle(delivery, 0, "dead")]

    assert answers == [True, False]
    assert await driver.state("a") == "completed"


async def test_a_zombie_cannot_settle(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", b"", [])
    (new,) = await driver.fetch("other")

    taken = [await driver.settle(old, 0, word) for word in ("done", "dead", "delay")]

    assert taken == [False] * 3
    assert await driver.state("a") == "active"
    assert new.entry > old.entry, "the fence must rise"
    assert await driver.settle(new, 0, "done")


async def test_a_zombie_cannot_settle_a_train(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (old,) = await driver.fetch("zombie")
    await driver.partition.reclaim("zombie", b"", [])
    (new,) = await driver.fetch("other")

    taken = [await driver.settle(old, at, word) for at, word in ((0, "done"), (0, "dead"), (1, "done"))]

    assert taken == [False] * 3
    assert [await driver.state(id) for id in ("a1", "a2")] == ["active", "waiting"]
    await driver.finish(new)


async def test_a_lane_is_empty_when_all_of_it_is_done(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    for _ in range(2):
        (delivery,) = await driver.fetch()
        await driver.finish(delivery)

    await driver.enqueue("b0", key="a")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["b0"]]


async def test_what_waits_in_a_lane_leaves_as_a_train(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue(*(f"a{n:02d}" for n in range(270)), key="a")
    (first,) = await driver.fetch()

    await driver.finish(first)

    (train,) = await driver.fetch()
    assert ids_of(train) == [f"a{n:02d}" for n in range(1, 257)]


async def test_jobs_of_short_trains_share_an_entry_of_completed_jobs(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    for key in "abc":
        await driver.enqueue(*(f"{key}{n}" for n in range(4)), key=key)
    await driver.complete_together()
    trains = await driver.fetch()
    outcomes = PartitionOutcomes()
    for job in [job for train in trains for job in train.jobs()]:
        outcomes.done_in_train(job.position, job.id, job.record, append_ending(Ending(1, 1.0, "w1")))

    assert await driver.partition.settle(outcomes) == []

    assert [len(train.jobs()) for train in trains] == [3, 3, 3]
    assert [await driver.state(f"{key}{n}") for key in "abc" for n in range(4)] == ["completed"] * 12
    assert await store.server.call("XLEN", driver.partition.base + "completed") == 2


async def test_a_train_is_not_heavier_than_it_should_be(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    for n in range(5):
        await driver.enqueue(f"a{n}", key="a", payload=b'"' + b"x" * 100_000 + b'"')
    (first,) = await driver.fetch()

    await driver.finish(first)

    (train,) = await driver.fetch()
    assert ids_of(train) == ["a1", "a2"]


async def test_a_job_that_must_wait_sends_the_rest_of_its_train_back(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    await driver.settle(train, 0, "done")
    await driver.settle(train, 1, "delay", 3_600_000)

    assert await driver.fetch() == []
    assert [await driver.state(id) for id in ("a1", "a2", "a3")] == ["completed", "delayed", "waiting"]
    await driver.let_time_pass("a2")
    await driver.partition.promote()
    (again,) = await driver.fetch()
    assert ids_of(again) == ["a2"]
    await driver.finish(again)
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a3"]]


async def test_a_lane_with_a_limit_has_no_more_in_front_of_the_workers(store: Store) -> None:
    driver = await PartitionDriver.open(store, lane=Lane(limit=2))
    await driver.enqueue("a1", "a2", "a3", "a4", key="a")

    first, second = await driver.fetch()
    await driver.finish(first)

    assert [ids_of(first), ids_of(second)] == [["a1"], ["a2"]]
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a3"]]


async def test_a_lane_that_halts_stops_at_its_dead_letter(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a1", "a2", key="a")
    (first,) = await driver.fetch()

    await driver.settle(first, 0, "dead")

    assert await driver.fetch() == []
    assert [await driver.state(id) for id in ("a1", "a2")] == ["failed", "waiting"]


async def test_a_lane_goes_on_after_a_dead_letter_by_default(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", key="a")
    (first,) = await driver.fetch()

    await driver.settle(first, 0, "dead")

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a2"]]


async def test_a_queue_that_gives_up_its_order_empties_its_lanes(store: Store) -> None:
    ordered = await PartitionDriver.open(store, order="key")
    await ordered.enqueue(*(f"a{n}" for n in range(50)), key="a")
    unordered = await PartitionDriver.open(store)

    done = 0
    while deliveries := await unordered.fetch():
        for delivery in deliveries:
            await unordered.finish(delivery)
            done += len(ids_of(delivery))

    assert done == 50


async def test_finished_jobs_are_kept_by_count(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(completed=3, failed=2))
    await driver.enqueue(*(f"a{n}" for n in range(10)))

    for n, delivery in enumerate(await driver.fetch()):
        await driver.settle(delivery, 0, "done" if n < 6 else "dead")

    counts = await driver.counts()
    assert (counts.completed, counts.failed) == (3, 2)
    assert [await driver.state(id) for id in ("a2", "a3", "a5", "a7", "a9")] == [
        None,
        "completed",
        "completed",
        None,
        "failed",
    ]


async def test_finished_jobs_are_kept_by_age(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(completed_for=60))
    old = append_ending(Ending(1, 1.0, "w1", b"1"))
    await store.server.call(
        "XADD", driver.partition.base + "completed", "1000-0", "old", driver.job("old").record + old
    )
    await store.server.call("HINCRBY", driver.partition.base + "kept", "completed", 1)
    await store.server.call("HSET", driver.partition.base + "index", "old", "c1000-0")
    await driver.enqueue("new")

    (delivery,) = await driver.fetch()
    await driver.finish(delivery)

    assert [await driver.state("old"), await driver.state("new")] == [None, "completed"]


async def test_nothing_is_kept_where_nothing_is_to_be_kept(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(completed=0))
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await driver.partition.mark_isolated(b"a", delivery.position)

    await driver.finish(delivery)

    assert (await driver.counts()).total == 0
    assert await store.server.call("EXISTS", driver.partition.base + "job:a") == 0


async def test_what_another_program_wrote_into_the_stream_becomes_a_dead_letter(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await store.server.call("XADD", driver.partition.base + "ready:5", "*", "hello", "world")
    (foreign,) = await driver.fetch()

    ending = append_ending(Ending(1, 0.0, "w1", error="cannot be read"))
    outcomes = PartitionOutcomes()
    outcomes.dead(foreign.job(0).position, b"hello", b"world", ending)
    stale = await driver.partition.settle(outcomes)

    assert stale == []
    assert await driver.state("hello") == "failed"
