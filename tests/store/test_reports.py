"""Reports: what happens to a job that asks for it is written down together with the change itself, once."""

from __future__ import annotations

from typing import Any

import pytest
from partition_driver import PartitionDriver

from qbull.config import Keep
from qbull.core.ids import new_token
from qbull.core.layout import Generation
from qbull.core.record import REPORT_END_FLAG, Ending, append_ending, body_of, crashes_of, split_ending
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.layout import close_partition
from qbull.store.verbs.outcomes import PartitionOutcomes
from qbull.store.verbs.partition import JobToRetry

BURIED = append_ending(Ending(0, 0.0, "w1", error="its worker died"))


async def told(driver: PartitionDriver, drop: bool = True) -> list[str]:
    """Letters and ids, in their order: "c" for a job that is done, "e" where only its end was asked for."""
    entries, _ = await driver.partition.reports([], 1000)
    if drop:
        await driver.partition.reports([entry for entry, _ in entries], 1000)
    found: list[str] = []
    for name, value in pairs(entries):
        many = int(name[1:]) if name[0] in "CE" else 0
        ids = value.split(b"\n", many)[:many]
        found += [name[0].lower() + id.decode() for id in ids] if many else [name]
    return found


def pairs(entries: list[tuple[bytes, list[bytes]]]) -> list[tuple[str, bytes]]:
    return [
        (name.decode(), value)
        for _, fields in entries
        for name, value in zip(fields[::2], fields[1::2], strict=True)
    ]


async def values(driver: PartitionDriver) -> list[bytes]:
    entries, _ = await driver.partition.reports([], 1000)
    return [value for _, value in pairs(entries)]


@pytest.mark.parametrize("order", [None, "key", "partition"])
@pytest.mark.parametrize("kept", [0, 10])
async def test_everything_that_a_tracked_job_goes_through(store: Store, order: Any, kept: int) -> None:
    driver = await PartitionDriver.open(store, track=True, order=order, keep=Keep(completed=kept))

    await driver.enqueue("a", key="k")
    await driver.enqueue("b", key="other", when=60_000)
    begun = await told(driver)
    [delivery] = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 60_000)
    again = await told(driver)
    await driver.partition.promote_one(new_token(), "a")
    [delivery] = await driver.fetch()
    await driver.settle(delivery, 0, "done")
    done = await told(driver)
    await driver.partition.remove(new_token(), [("b", b"")])

    assert (begun, again, done) == (["wa", "db"], ["da"], ["ca"])
    assert await told(driver) == ["-b"]


async def test_a_job_that_fails_and_is_sent_round_again(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a", "b")
    await driver.fail("a", "b")
    failed = await told(driver)
    found = await inspect.find(driver.partition, "a")
    assert found is not None
    await driver.partition.retry(new_token(), [JobToRetry("a", found.position, found.again())])

    assert failed == ["wa", "wb", "fa", "fb"]
    assert await told(driver) == ["wa"]


async def test_a_job_that_kills_its_worker_too_often(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a")
    for _ in range(3):
        [delivery] = await driver.fetch()
        await driver.partition.reclaim("w1", BURIED, [delivery.position])

    assert await told(driver) == ["wa", "fa"]


async def test_a_cancelled_job(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a")
    await driver.cancel("a")

    assert await told(driver) == ["wa", "xa"]


async def test_of_a_durable_job_only_its_end_and_only_its_id(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key")
    await driver.enqueue("a", "b", "c", key="k", reports=REPORT_END_FLAG)
    await driver.enqueue("other", key="k2")
    for _ in range(2):  # the second time it is a train
        for delivery in await driver.fetch():
            await driver.finish(delivery)

    assert await told(driver, drop=False) == ["ea", "eb", "ec"]
    assert await values(driver) == [b"a", b"b", b"c"]


async def test_a_flag_survives_what_a_lane_does_to_the_record(store: Store) -> None:
    driver = await PartitionDriver.open(store, order="key", on_failed="halt")
    await driver.enqueue("a", key="k", reports=REPORT_END_FLAG)
    [delivery] = await driver.fetch()
    await driver.settle(delivery, 0, "delay", 0)
    [delivery] = await driver.fetch()
    await driver.settle(delivery, 0, "dead")
    found = await inspect.find(driver.partition, "a")

    assert await told(driver) == ["fa"]
    assert found is not None and found.record[2] == REPORT_END_FLAG + 1


async def test_jobs_that_ask_for_nothing_are_not_reported(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b")
    for delivery in await driver.fetch():
        await driver.finish(delivery)

    assert await store.server.call("EXISTS", driver.partition.base + "reports") == 0


async def test_an_id_that_is_there_already_is_not_reported_again(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a", "a")
    await driver.enqueue("a", "b", when=10)

    assert await told(driver) == ["wa", "db"]


async def test_a_refused_outcome_is_not_reported(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a")
    [stale] = await driver.fetch()
    await driver.partition.release("w1", [stale.position])
    await told(driver)

    assert not await driver.settle(stale, 0, "done")
    assert await told(driver) == []


@pytest.mark.parametrize("size", [10, 1500, 3000, 70_000])
async def test_a_large_job_is_reported_without_payload_and_result(store: Store, size: int) -> None:
    driver = await PartitionDriver.open(store, track=True, order="key")
    await driver.enqueue("a", key="k" * 50, payload=b"p" * size)
    [delivery] = await driver.fetch()
    outcomes = PartitionOutcomes()
    ending = Ending(1, 2.5, "worker-1", b"r" * size, "an error" * 3, None, 7)
    outcomes.done(delivery.level, delivery.entry, b"a", delivery.job(0).record + append_ending(ending))
    await driver.partition.settle(outcomes)

    waiting, done = await values(driver)
    body = body_of(waiting)
    id, endings = done.split(b"\n", 1)
    nothing, told_of = split_ending(endings)
    assert len(waiting) < 2200 and len(done) < 2200
    assert (body.task, body.key, body.attempt) == ("task", "k" * 50, 1)
    assert (id, nothing) == (b"a", b"")
    assert (told_of.attempt, told_of.duration_ms, told_of.worker) == (1, 2.5, "worker-1")
    assert (told_of.error, told_of.created_ms) == ("an error" * 3, 7)


@pytest.mark.parametrize("size", [10, 3000, 70_000])
async def test_a_large_job_that_fails_too(store: Store, size: int) -> None:
    driver = await PartitionDriver.open(store, track=True, order="key")
    await driver.enqueue("a", key="k", payload=b"p" * size)
    [delivery] = await driver.fetch()
    outcomes = PartitionOutcomes()
    ending = append_ending(Ending(3, 2.5, "worker-1", None, "an error", "a trace"))
    outcomes.dead(delivery.job(0).position, b"a", delivery.job(0).record, ending)
    await driver.partition.settle(outcomes)

    [_, failed] = await values(driver)
    record, told_of = split_ending(failed)
    assert len(failed) < 2300
    assert (body_of(record).task, body_of(record).key) == ("task", "k")
    assert (told_of.attempt, told_of.error) == (3, "an error")


async def test_many_that_are_done_together_are_one_report(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    ids = [f"j{n}" for n in range(60)]
    await driver.enqueue(*ids)
    await told(driver)
    outcomes = PartitionOutcomes()
    for n, delivery in enumerate(await driver.fetch()):
        finished = delivery.job(0).record + append_ending(Ending(n, 1.0, "w"))
        outcomes.done(delivery.level, delivery.entry, delivery.job(0).id, finished)
    await driver.partition.settle(outcomes)

    [value] = await values(driver)
    *found, rest = value.split(b"\n", 60)
    attempts = []
    while rest:
        rest, ending = split_ending(rest)
        attempts.append(ending.attempt)
    assert [id.decode() for id in found] == ids
    assert attempts == list(reversed(range(60)))


async def test_what_was_told_is_dropped_and_nothing_else(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True)
    for id in "abc":
        await driver.enqueue(id)
    [first, *_], length = await driver.partition.reports([], 1)
    left, fewer = await driver.partition.reports([first[0]], 10)

    assert (length, fewer) == (3, 2)
    assert [fields[0] for _, fields in left] == [b"wb", b"wc"]


async def test_a_partition_that_was_left_stays_until_its_reports_are_told(store: Store) -> None:
    driver = await PartitionDriver.open(store, track=True, keep=Keep(completed=0))
    await driver.enqueue("a")
    await close_partition(driver.partition, Generation(1, 2))
    for delivery in await driver.fetch():
        await driver.finish(delivery)

    before = await store.server.script("move_erase", driver.partition.base)
    untold = await told(driver)
    after = await store.server.script("move_erase", driver.partition.base)

    assert (before, untold, after) == (0, ["wa", "ca"], 1)


@pytest.mark.parametrize("payload", [b"{}", b"x" * 3000], ids=["small", "large"])
async def test_a_job_that_is_done_after_a_crash_is_reported_with_its_crashes(
    store: Store, payload: bytes
) -> None:
    driver = await PartitionDriver.open(store, track=True)
    await driver.enqueue("a", payload=payload)
    [lost] = await driver.fetch("dead")
    await driver.partition.reclaim("dead", BURIED, [lost.position])
    await told(driver)

    [delivery] = await driver.fetch()
    await driver.finish(delivery)

    [value] = await values(driver)
    record, ending = split_ending(value)
    assert await told(driver) == ["ca"]
    assert (crashes_of(record), body_of(record).task, ending.attempt) == (1, "task", 1)
