"""The specification of unique: which of several jobs counts, decided in one step, wherever the job is."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.core.record import Body, pack
from qbull.core.route import unique_name_lane
from qbull.store.read import inspect, pages
from qbull.store.store import Store
from qbull.store.verbs.unique import UniqueJob

NAME = "0123456789abcdef" * 2


async def ask(
    driver: PartitionDriver,
    id: str,
    mode: str,
    key: str | None = None,
    window_ms: int = 60_000,
    **options: object,
) -> tuple[str, bool]:
    payload = f'{{"by": "{id}"}}'.encode()
    made = driver.job(id, key, payload=payload, **options)  # type: ignore[arg-type]
    record = made.record
    if mode == "after" and not driver.settings.lane_limit:
        record = pack(Body("task", payload, key), priority=5, lane=unique_name_lane(NAME))
    answer = await driver.partition.unique([UniqueJob(id, made.when, record, NAME, mode, window_ms)])
    return answer[0]


async def asked_by(driver: PartitionDriver, id: str) -> str:
    found = await inspect.find(driver.partition, id)
    assert found is not None
    return found.body().payload.decode().split('"')[3]


@pytest.mark.parametrize("mode", ["first", "last", "reschedule", "debounce", "after"])
async def test_a_call_that_is_sent_twice_is_one(store: Store, mode: str) -> None:
    driver = await PartitionDriver.open(store)

    answers = [await ask(driver, "a", mode) for _ in range(2)]

    assert answers == [("a", True)] * 2
    assert (await driver.counts()).total == 1


@pytest.mark.parametrize("mode", ["last", "reschedule", "debounce", "after"])
async def test_a_call_that_renewed_a_job_and_is_sent_again_when_that_has_begun_adds_no_other(
    store: Store, mode: str
) -> None:
    """Its reply was lost: its arguments are with the job that has begun, and would run twice."""
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", mode)
    renewed = await ask(driver, "b", mode)
    await driver.let_time_pass("a")
    await driver.partition.promote()
    (delivery,) = await driver.fetch()

    again = await ask(driver, "b", mode)

    assert renewed == again == ("a", False)
    assert ((await driver.counts()).total, await asked_by(driver, "a")) == (1, "b")
    assert await ask(driver, "c", mode) == ("c", True)
    await driver.finish(delivery)


async def test_a_call_that_is_sent_again_when_its_job_is_gone_adds_no_other(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=_none())
    await ask(driver, "a", "first")
    (delivery,) = await driver.fetch()
    await driver.finish(delivery)

    assert await ask(driver, "a", "first") == ("a", True)
    assert (await driver.counts()).total == 0


def _none() -> object:
    from qbull.config import Keep

    return Keep(completed=0)


async def test_a_renewed_job_has_the_time_and_the_priority_of_the_newest_call(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", "last")
    await driver.enqueue("b")
    (other,) = await pages.page([driver.partition], "waiting", 1, 2)

    answer = await ask(driver, "c", "last", priority=1)

    after = await inspect.find(driver.partition, "a")
    assert answer == ("a", False)
    assert after is not None
    assert after.created_ms() >= other.created_ms()
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["a"], ["b"]]
    assert await asked_by(driver, "a") == "c"


async def test_a_job_in_a_train_that_waits_is_renewed(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", key="a")
    await ask(driver, "u", "last", "a")
    (first,) = await driver.fetch()
    await driver.finish(first)

    answer = await ask(driver, "v", "last", "a")

    assert answer == ("u", False)
    (train,) = await driver.fetch()
    assert ids_of(train) == ["a1", "u"]
    assert await asked_by(driver, "u") == "v"


async def test_a_job_in_a_train_that_a_worker_has_is_not(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", key="a")
    await ask(driver, "u", "last", "a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    await driver.fetch()

    assert await ask(driver, "v", "last", "a") == ("v", True)
    assert await asked_by(driver, "u") == "u"


async def test_a_debounced_job_that_is_due_is_no_longer_put_off(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", "debounce")
    await driver.let_time_pass("a")
    await driver.partition.promote()

    assert await ask(driver, "b", "debounce") == ("b", True)
    assert [await driver.state(id) for id in ("a", "b")] == ["waiting", "delayed"]


async def test_what_comes_while_one_runs_waits_in_its_lane(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", "after")
    (running,) = await driver.fetch()

    answers = [await ask(driver, id, "after") for id in ("b", "c")]

    assert answers == [("b", True), ("b", False)]
    assert await driver.fetch() == []
    await driver.settle(running, 0, "delay", 3_600_000)
    assert await driver.fetch() == []
    await driver.let_time_pass("a")
    await driver.partition.promote()
    (again,) = await driver.fetch()
    await driver.finish(again)
    (following,) = await driver.fetch()
    assert (ids_of(again), ids_of(following), await asked_by(driver, "b")) == (["a"], ["b"], "c")


async def test_a_lane_of_a_name_survives_the_death_of_its_worker(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", "after")
    await driver.fetch("dead")
    await ask(driver, "b", "after")

    await driver.partition.reclaim("dead", b"", [])

    (again,) = await driver.fetch("other")
    await driver.finish(again)
    assert [ids_of(again), *map(ids_of, await driver.fetch("other"))] == [["a"], ["b"]]


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize("before", [0, 60_000])
@pytest.mark.parametrize("after", [0, 3_600_000])
async def test_a_waiting_job_takes_the_newest_delay(
    store: Store, order: str | None, before: int, after: int
) -> None:
    driver = await PartitionDriver.open(store, order=order)
    await ask(driver, "a", "reschedule", key="k", when=before)

    assert await ask(driver, "b", "reschedule", key="k", when=after) == ("a", False)

    found = await inspect.find(driver.partition, "a")
    assert found is not None
    assert found.state == ("delayed" if after else "waiting")
    assert await asked_by(driver, "a") == "b"
    assert (await driver.counts()).total == 1
    if not after:
        assert await driver.run_all() == ["a"]


async def test_a_reschedule_that_is_sent_again_changes_nothing(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await ask(driver, "a", "reschedule", when=60_000)
    await ask(driver, "b", "reschedule", when=0)
    await driver.run_all()

    assert await ask(driver, "b", "reschedule", when=0) == ("a", False)

    assert await driver.run_all() == [], "it has run with these arguments"
