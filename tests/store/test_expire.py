"""The specification of expiring: what has not begun in time is cancelled, wherever it waits, and nothing else is."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver, ids_of

from qbull.config import Keep
from qbull.core.record import ExtendedBody, pack
from qbull.store.store import Store
from qbull.store.verbs.partition import NewJob

HOUR = 3_600_000


async def test_a_job_that_waits_is_cancelled_when_its_time_is_over(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b", when=f"0 {HOUR}")
    await driver.let_end_come("a")

    await driver.partition.promote()

    assert [await driver.state(id) for id in ("a", "b")] == ["cancelled", "waiting"]
    assert [ids_of(delivery) for delivery in await driver.fetch()] == [["b"]]


@pytest.mark.parametrize("size", [0, 2, 300, 70_000])
async def test_its_end_is_found_whatever_else_is_in_its_record(store: Store, size: int) -> None:
    driver = await PartitionDriver.open(store)
    body = ExtendedBody(
        "t" * max(size % 1000, 1), b"x" * size, "k" * size, 1, 300, 1.5, schedule="s" * size, expires=HOUR
    )
    record = pack(body, priority=5, lane=b"")
    await driver.partition.enqueue([NewJob("a", f"0 {HOUR}", record)])
    await driver.let_end_come("a")

    await driver.partition.promote()

    assert await driver.state("a") == "cancelled"


async def test_a_delayed_job_is_cancelled_too(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"{HOUR} {2 * HOUR}")
    await driver.let_end_come("a")

    moved, wait, _ = await driver.partition.promote()

    assert (moved, wait, await driver.state("a")) == (0, None, "cancelled")


async def test_those_behind_it_in_its_lane_go_on(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a1", key="a", when=f"0 {HOUR}")
    await driver.enqueue("a2", "a3", key="a")
    await driver.let_end_come("a1")

    await driver.partition.promote()

    (train,) = await driver.fetch()
    assert ids_of(train) == ["a2", "a3"]


async def test_a_job_in_a_train_that_waits_leaves_it(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a0", "a1", key="a")
    await driver.enqueue("a2", key="a", when=f"0 {HOUR}")
    await driver.enqueue("a3", key="a")
    (first,) = await driver.fetch()
    await driver.finish(first)
    await driver.let_end_come("a2")

    await driver.partition.promote()

    (train,) = await driver.fetch()
    assert (ids_of(train), await driver.state("a2")) == (["a1", "a3"], "cancelled")


async def test_what_a_worker_has_is_left_to_it(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"0 {HOUR}")
    (delivery,) = await driver.fetch()
    await driver.let_end_come("a")

    await driver.partition.promote()

    assert await driver.state("a") == "active"
    await driver.finish(delivery)


async def test_a_job_that_waits_for_its_next_attempt_does_not_expire(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"0 {HOUR}")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "delay", HOUR)
    await driver.let_end_come("a")

    await driver.partition.promote()

    assert await driver.state("a") == "delayed"


async def test_one_that_was_only_put_off_does(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"0 {HOUR}")
    (delivery,) = await driver.fetch()
    await driver.settle(delivery, 0, "later", HOUR)
    await driver.let_end_come("a")

    await driver.partition.promote()

    assert await driver.state("a") == "cancelled"


async def test_a_job_that_goes_round_again_does_not_expire(store: Store) -> None:
    """It was cancelled at its first end, although that was for its first round."""
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"0 {HOUR}")
    await driver.fail("a")
    await driver.retry("a")
    await driver.let_end_come("a")

    _, wait, _ = await driver.partition.promote()

    assert (await driver.state("a"), wait) == ("waiting", None)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("when", [0, HOUR])
async def test_the_end_of_a_job_is_not_that_of_a_later_one_with_its_id(
    store: Store, key: str | None, when: int
) -> None:
    driver = await PartitionDriver.open(store, order="key", keep=Keep(completed=0))
    await driver.enqueue("a", when=f"0 {HOUR}")
    await driver.run_all()
    await driver.enqueue("first", "a", key=key, when=when)
    await driver.let_end_come("a")

    _, wait, _ = await driver.partition.promote()

    assert await driver.state("a") == ("waiting" if when == 0 else "delayed")
    assert (wait is None) == (when == 0)


async def test_a_later_job_with_the_same_id_has_its_own_end(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(completed=0))
    await driver.enqueue("a", when=f"0 {HOUR}")
    await driver.run_all()
    await driver.enqueue("a", when=f"0 {2 * HOUR}")

    _, wait, _ = await driver.partition.promote()
    await driver.let_end_come("a")
    await driver.partition.promote()

    assert wait is not None and wait > 3601
    assert await driver.state("a") == "cancelled"


async def test_whoever_promotes_is_told_when_the_next_one_expires(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", when=f"{2 * HOUR} {3 * HOUR}")
    await driver.enqueue("b", when=f"0 {HOUR}")

    _, wait, _ = await driver.partition.promote()

    assert wait is not None and 3500 < wait <= 3601


async def test_a_job_begins_until_the_very_moment_on_the_servers_clock(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    seconds, _ = await store.server.call("TIME")
    now_ms = int(seconds) * 1000

    answers = [await driver.partition.start(ends, b"", None, 0) for ends in (0, now_ms + 60_000, now_ms - 1)]

    assert [answer and answer[:2] for answer in answers] == [(0, 0), (0, 0), None]
    assert [answer[2] > 0 for answer in answers if answer is not None] == [False, True]
