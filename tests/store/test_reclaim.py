"""The specification of reclaim and release: what a dead or stopping worker held comes back, and who is to blame."""

from __future__ import annotations

from partition_driver import CRASHED, PartitionDriver, ids_of

from qbull.config import Keep
from qbull.core.record import crashes_of
from qbull.store.store import Store


async def test_what_a_dead_worker_held_comes_back_before_everything_else(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b", "c")
    await driver.fetch("dead", count=1)

    taken = await driver.partition.reclaim("dead", CRASHED, [])

    assert taken.deliveries == 1
    assert [ids_of(delivery)[0] for delivery in await driver.fetch()] == ["a", "b", "c"]


async def test_only_what_was_running_is_suspected(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("ran", "waited")
    ran, _ = await driver.fetch("dead")

    await driver.partition.reclaim("dead", CRASHED, [ran.position])

    crashes = {ids_of(delivery)[0]: crashes_of(delivery.job(0).record) for delivery in await driver.fetch()}
    assert crashes == {"ran": 1, "waited": 0}


async def test_the_third_crash_is_the_last(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("poison", "next", key="a")

    for _ in range(3):
        (delivery,) = await driver.fetch("dead")
        assert ids_of(delivery)[0] == "poison"
        answer = await driver.partition.reclaim("dead", CRASHED, [delivery.position])

    assert answer.dead == 1
    assert await driver.state("poison") == "failed"
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["next"]]


async def test_nobody_is_blamed_to_death_unseen(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("innocent")

    for _ in range(10):
        await driver.fetch("dead")
        await driver.partition.reclaim("dead", CRASHED, None)

    assert await driver.state("innocent") == "waiting"


async def test_a_suspect_that_marked_its_start_is_blamed_unseen(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("poison")
    for _ in range(2):
        await driver.fetch("dead")
        await driver.partition.reclaim("dead", CRASHED, None)

    (delivery,) = await driver.fetch("dead")
    await driver.partition.mark_isolated(b"poison", delivery.position)
    await driver.partition.reclaim("dead", CRASHED, None)

    assert await driver.state("poison") == "failed"


async def test_a_suspect_that_another_has_ended_leaves_no_mark(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(completed=0))
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)

    await driver.partition.mark_isolated(b"a", delivery.position)

    assert await store.server.call("EXISTS", driver.partition.base + "job:a") == 0


async def test_a_train_comes_back_without_what_was_settled(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch("dead")
    await driver.settle(train, 0, "done")

    await driver.partition.reclaim("dead", CRASHED, [train.position])

    (again,) = await driver.fetch()
    assert ids_of(again) == ["a2", "a3"]
    assert crashes_of(again.job(0).record) == 1 and crashes_of(again.job(1).record) == 0


async def test_a_worker_with_nothing_left_is_forgotten(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue(*(f"a{n}" for n in range(250)))
    await driver.fetch("dead", count=500)

    calls = 0
    while (await driver.partition.reclaim("dead", CRASHED, [])).more:
        calls += 1

    streams = await store.streams([driver.partition])
    assert calls == 3
    assert [await store.consumers(stream) for stream in streams.values()] == [{}, {}]


async def test_a_train_that_is_given_back_twice_in_one_call_goes_back_once(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a1", "a2", "a3", key="a")
    [single] = await driver.fetch()
    await driver.finish(single)
    [train] = await driver.fetch()

    jobs = await driver.partition.release("w1", [train.position, train.position])

    assert jobs == 2
    assert [ids_of(delivery) for delivery in await driver.fetch("w2")] == [["a2", "a3"]]


async def test_release_counts_nothing_against_a_job(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", "a2", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    (train,) = await driver.fetch()

    jobs = await driver.partition.release("w1", [train.position])

    assert jobs == 2
    (again,) = await driver.fetch()
    assert ids_of(again) == ["a1", "a2"]
    assert crashes_of(again.job(0).record) == 0
    assert not await driver.settle(train, 0, "done"), "the old delivery is worth nothing any more"


async def test_what_another_program_wrote_is_not_lost_on_the_way(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await store.server.call("XADD", driver.partition.base + "ready:5", "*", "hello", "world")
    await driver.fetch("dead")

    await driver.partition.reclaim("dead", CRASHED, None)

    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["hello"]]


async def test_those_who_wait_for_a_job_that_kills_its_workers_are_told_of_its_end(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("poison")
    messages = store.server.listen(store.names.done)
    await anext(messages)  # the subscription stands
    await store.server.call("SET", driver.partition.base + "waiters", "1", "EX", 60)

    for _ in range(3):
        (delivery,) = await driver.fetch("dead")
        await driver.partition.reclaim("dead", CRASHED, [delivery.position])
    _, message = await anext(messages)
    await messages.aclose()  # type: ignore[attr-defined]

    assert message.decode().split("\n") == [driver.partition.base, "poison"]


async def test_a_queue_decides_which_crash_is_the_last(store: Store) -> None:
    driver = await PartitionDriver.open(store, max_crashes=1)
    await driver.enqueue("poison", "next")
    poison, _ = await driver.fetch("dead")

    answer = await driver.partition.reclaim("dead", CRASHED, [poison.position])

    assert answer.dead == 1
    assert (await driver.state("poison"), await driver.state("next")) == ("failed", "waiting")


async def test_with_one_crash_allowed_nobody_is_blamed_unseen_either(store: Store) -> None:
    driver = await PartitionDriver.open(store, max_crashes=1)
    await driver.enqueue("innocent")

    await driver.fetch("dead")
    await driver.partition.reclaim("dead", CRASHED, None)

    assert await driver.state("innocent") == "waiting"


async def test_a_job_that_is_retried_after_its_last_crash_is_not_dead_before_it_runs(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("poison")
    for _ in range(3):
        (delivery,) = await driver.fetch("dead")
        await driver.partition.reclaim("dead", CRASHED, [delivery.position])
    await driver.retry("poison")

    await driver.fetch("stopped")
    await driver.partition.reclaim("stopped", CRASHED, [])
    assert await driver.state("poison") == "waiting"

    (delivery,) = await driver.fetch("dead")
    await driver.partition.reclaim("dead", CRASHED, [delivery.position])
    assert await driver.state("poison") == "failed"
