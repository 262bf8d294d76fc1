"""The specification of unique: which of several jobs counts, decided in one step, wherever the job is."""

from __future__ import annotations

import pytest
from desk import Desk, ids_of

from qbull.core.record import Body, pack
from qbull.core.route import unique_name_lane
from qbull.store.read import inspect, pages
from qbull.store.store import Store
from qbull.store.verbs.partition import UniqueJob

NAME = "0123456789abcdef" * 2


async def ask(
    desk: Desk, id: str, mode: str, key: str | None = None, window_ms: int = 60_000, **options: object
) -> tuple[str, bool]:
    payload = f'{{"by": "{id}"}}'.encode()
    made = desk.job(id, key, payload=payload, **options)  # type: ignore[arg-type]
    record = made.record
    if mode == "after" and not desk.settings.lane_limit:
        record = pack(Body("task", payload, key), priority=5, lane=unique_name_lane(NAME))
    answer = await desk.partition.unique([UniqueJob(id, made.when, record, NAME, mode, window_ms)])
    return answer[0]


async def asked_by(desk: Desk, id: str) -> str:
    found = await inspect.find(desk.partition, id)
    assert found is not None
    return found.body().payload.decode().split('"')[3]


@pytest.mark.parametrize("mode", ["first", "last", "debounce", "after"])
async def test_a_call_that_is_sent_twice_is_one(store: Store, mode: str) -> None:
    desk = await Desk.open(store)

    answers = [await ask(desk, "a", mode) for _ in range(2)]

    assert answers == [("a", True)] * 2
    assert (await desk.counts()).total == 1


@pytest.mark.parametrize("mode", ["last", "debounce", "after"])
async def test_a_call_that_renewed_a_job_and_is_sent_again_when_that_has_begun_adds_no_other(
    store: Store, mode: str
) -> None:
    """Its reply was lost: its arguments are with the job that has begun, and would run twice."""
    desk = await Desk.open(store)
    await ask(desk, "a", mode)
    renewed = await ask(desk, "b", mode)
    await desk.let_time_pass("a")
    await desk.partition.promote()
    (delivery,) = await desk.fetch()

    again = await ask(desk, "b", mode)

    assert renewed == again == ("a", False)
    assert ((await desk.counts()).total, await asked_by(desk, "a")) == (1, "b")
    assert await ask(desk, "c", mode) == ("c", True)
    await desk.finish(delivery)


async def test_a_call_that_is_sent_again_when_its_job_is_gone_adds_no_other(store: Store) -> None:
    desk = await Desk.open(store, keep=_none())
    await ask(desk, "a", "first")
    (delivery,) = await desk.fetch()
    await desk.finish(delivery)

    assert await ask(desk, "a", "first") == ("a", True)
    assert (await desk.counts()).total == 0


def _none() -> object:
    from qbull.config import Keep

    return Keep(completed=0)


async def test_a_renewed_job_has_the_time_and_the_priority_of_the_newest_call(store: Store) -> None:
    desk = await Desk.open(store)
    await ask(desk, "a", "last")
    await desk.enqueue("b")
    (other,) = await pages.page([desk.partition], "waiting", 1, 2)

    answer = await ask(desk, "c", "last", priority=1)

    after = await inspect.find(desk.partition, "a")
    assert answer == ("a", False)
    assert after is not None
    assert after.created_ms() >= other.created_ms()
    assert [ids_of(delivery) for delivery in await desk.fetch()] == [["a"], ["b"]]
    assert await asked_by(desk, "a") == "c"


async def test_a_job_in_a_train_that_waits_is_renewed(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a0", "a1", key="a")
    await ask(desk, "u", "last", "a")
    (first,) = await desk.fetch()
    await desk.finish(first)

    answer = await ask(desk, "v", "last", "a")

    assert answer == ("u", False)
    (train,) = await desk.fetch()
    assert ids_of(train) == ["a1", "u"]
    assert await asked_by(desk, "u") == "v"


async def test_a_job_in_a_train_that_a_worker_has_is_not(store: Store) -> None:
    desk = await Desk.open(store, order="key")
    await desk.enqueue("a0", "a1", key="a")
    await ask(desk, "u", "last", "a")
    (first,) = await desk.fetch()
    await desk.finish(first)
    await desk.fetch()

    assert await ask(desk, "v", "last", "a") == ("v", True)
    assert await asked_by(desk, "u") == "u"


async def test_a_debounced_job_that_is_due_is_no_longer_put_off(store: Store) -> None:
    desk = await Desk.open(store)
    await ask(desk, "a", "debounce")
    await desk.let_time_pass("a")
    await desk.partition.promote()

    assert await ask(desk, "b", "debounce") == ("b", True)
    assert [await desk.state(id) for id in ("a", "b")] == ["waiting", "delayed"]


async def test_what_comes_while_one_runs_waits_in_its_lane(store: Store) -> None:
    desk = await Desk.open(store)
    await ask(desk, "a", "after")
    (running,) = await desk.fetch()

    answers = [await ask(desk, id, "after") for id in ("b", "c")]

    assert answers == [("b", True), ("b", False)]
    assert await desk.fetch() == []
    await desk.settle(running, 0, "delay", 3_600_000)
    assert await desk.fetch() == []
    await desk.let_time_pass("a")
    await desk.partition.promote()
    (again,) = await desk.fetch()
    await desk.finish(again)
    (following,) = await desk.fetch()
    assert (ids_of(again), ids_of(following), await asked_by(desk, "b")) == (["a"], ["b"], "c")


async def test_a_lane_of_a_name_survives_the_death_of_its_worker(store: Store) -> None:
    desk = await Desk.open(store)
    await ask(desk, "a", "after")
    await desk.fetch("dead")
    await ask(desk, "b", "after")

    await desk.partition.reclaim("dead", b"", [])

    (again,) = await desk.fetch("other")
    await desk.finish(again)
    assert [ids_of(again), *map(ids_of, await desk.fetch("other"))] == [["a"], ["b"]]
