"""The specification of reclaim and release: what a dead or stopping worker held comes back, and who is to blame."""

from __future__ import annotations

from desk import CRASHED, Desk, ids_of

from qbull.config import Keep
from qbull.core.record import crashes_of
from qbull.store.store import Store


async def test_what_a_dead_worker_held_comes_back_before_everything_else(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("a", "b", "c")
    await desk.fetch("dead", count=1)

    taken = await desk.partition.reclaim("dead", CRASHED, [])

    assert taken.deliveries == 1
    assert [ids_of(delivery)[0] for delivery in await desk.fetch()] == ["a", "b", "c"]


async def test_only_what_was_running_is_suspected(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("ran", "waited")
    ran, _ = await desk.fetch("dead")

    await desk.partition.reclaim("dead", CRASHED, [ran.place])

    crashes = {ids_of(delivery)[0]: crashes_of(delivery.job(0).record) for delivery in await desk.fetch()}
    assert crashes == {"ran": 1, "waited": 0}


async def test_the_third_crash_is_the_last(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("poison", "next", key="a")

    for _ in range(3):
        (delivery,) = await desk.fetch("dead")
        assert ids_of(delivery)[0] == "poison"
        answer = await desk.partition.reclaim("dead", CRASHED, [delivery.place])

    assert answer.dead == 1
    assert await desk.state("poison") == "failed"
    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["next"]]


async def test_nobody_is_blamed_to_death_unseen(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("innocent")

    for _ in range(10):
        await desk.fetch("dead")
        await desk.partition.reclaim("dead", CRASHED, None)

    assert await desk.state("innocent") == "waiting"


async def test_a_suspect_that_marked_its_start_is_blamed_unseen(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("poison")
    for _ in range(2):
        await desk.fetch("dead")
        await desk.partition.reclaim("dead", CRASHED, None)

    (delivery,) = await desk.fetch("dead")
    await desk.partition.mark_alone(b"poison", delivery.place)
    await desk.partition.reclaim("dead", CRASHED, None)

    assert await desk.state("poison") == "failed"


async def test_a_suspect_that_another_has_ended_leaves_no_mark(store: Store) -> None:
    desk = await Desk.open(store, keep=Keep(completed=0))
    await desk.enqueue("a")
    (delivery,) = await desk.fetch()
    await desk.finish(delivery)

    await desk.partition.mark_alone(b"a", delivery.place)

    assert await store.server.call("EXISTS", desk.partition.base + "job:a") == 0


async def test_a_train_comes_back_without_what_was_settled(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a0", "a1", "a2", "a3", key="a")
    (first,) = await desk.fetch()
    await desk.finish(first)
    (train,) = await desk.fetch("dead")
    await desk.settle(train, 0, "done")

    await desk.partition.reclaim("dead", CRASHED, [train.place])

    (again,) = await desk.fetch()
    assert ids_of(again) == ["a2", "a3"]
    assert crashes_of(again.job(0).record) == 1 and crashes_of(again.job(1).record) == 0


async def test_a_worker_with_nothing_left_is_forgotten(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue(*(f"a{n}" for n in range(250)))
    await desk.fetch("dead", count=500)

    calls = 0
    while (await desk.partition.reclaim("dead", CRASHED, [])).more:
        calls += 1

    streams = await store.streams([desk.partition])
    assert calls == 3
    assert [await store.consumers(stream) for stream in streams.values()] == [{}, {}]


async def test_a_train_that_is_given_back_twice_in_one_call_goes_back_once(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a1", "a2", "a3", key="a")
    [single] = await desk.fetch()
    await desk.finish(single)
    [train] = await desk.fetch()

    jobs = await desk.partition.release([train.place, train.place])

    assert jobs == 2
    assert [ids_of(delivery) for delivery in await desk.fetch("w2")] == [["a2", "a3"]]


async def test_release_counts_nothing_against_a_job(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a0", "a1", "a2", key="a")
    (first,) = await desk.fetch()
    await desk.finish(first)
    (train,) = await desk.fetch()

    jobs = await desk.partition.release([train.place])

    assert jobs == 2
    (again,) = await desk.fetch()
    assert ids_of(again) == ["a1", "a2"]
    assert crashes_of(again.job(0).record) == 0
    assert not await desk.settle(train, 0, "done"), "the old delivery is worth nothing any more"


async def test_what_another_program_wrote_is_not_lost_on_the_way(store: Store) -> None:
    desk = await Desk.open(store)
    await store.server.call("XADD", desk.partition.base + "ready:5", "*", "hello", "world")
    await desk.fetch("dead")

    await desk.partition.reclaim("dead", CRASHED, None)

    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["hello"]]


async def test_those_who_wait_for_a_job_that_kills_its_workers_are_told_of_its_end(store: Store) -> None:
    desk = await Desk.open(store)
    await desk.enqueue("poison")
    messages = store.server.listen(store.names.done)
    await anext(messages)  # the subscription stands
    await store.server.call("SET", desk.partition.base + "waiters", "1", "EX", 60)

    for _ in range(3):
        (delivery,) = await desk.fetch("dead")
        await desk.partition.reclaim("dead", CRASHED, [delivery.place])
    _, message = await anext(messages)
    await messages.aclose()  # type: ignore[attr-defined]

    assert message.decode().split("\n") == [desk.partition.base, "poison"]
