"""Kinds of errors are counted with the outcomes: exactly, once, and within bounds."""

from __future__ import annotations

import pytest
from partition_driver import PartitionDriver

from qbull.core.failures import fingerprint
from qbull.core.record import Ending, append_ending
from qbull.store.read.error_kinds import OTHER_KINDS, read_error_kinds
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes


def ending(error: str) -> bytes:
    return append_ending(Ending(1, 5.0, "w", error=error))


async def fail(driver: PartitionDriver, ids: list[str], error: str) -> PartitionOutcomes:
    """Let jobs fail, and return the outcomes that were written."""
    await driver.enqueue(*ids)
    outcomes = PartitionOutcomes()
    for delivery in await driver.fetch():
        for at in range(len(delivery.fields) // 2):
            job = delivery.job(at)
            outcomes.dead(job.position, job.id, job.record, ending(error))
    await driver.partition.settle(outcomes)
    return outcomes


async def test_failures_are_counted_by_kind(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await fail(driver, ["a", "b", "c"], "SMTPError: 421 for u1@example.com")
    await fail(driver, ["d"], "SMTPError: 421 for u2@example.com")
    await fail(driver, ["e"], "ValueError: no")

    kinds = await read_error_kinds([driver.partition], 60)

    assert [(kind.error, kind.count, kind.total, kind.last_id) for kind in kinds] == [
        ("SMTPError: <n> for <mail>", 4, 4, "d"),
        ("ValueError: no", 1, 1, "e"),
    ]
    assert kinds[0].fingerprint == fingerprint("SMTPError: 421 for u1@example.com")
    assert kinds[0].first_ms <= kinds[0].last_ms


async def test_a_settle_that_is_sent_again_counts_once(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    outcomes = await fail(driver, ["a"], "ValueError: no")

    await driver.partition.settle(outcomes)

    (kind,) = await read_error_kinds([driver.partition], 60)
    assert (kind.count, kind.total) == (1, 1)


async def test_jobs_that_complete_write_no_counters(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a", "b")
    for delivery in await driver.fetch():
        await driver.finish(delivery)

    assert await read_error_kinds([driver.partition], 60) == []
    names = await driver.partition.server.call("KEYS", driver.partition.base.replace("{", "\\{") + "errors*")
    assert names == []


async def test_a_kind_that_was_not_seen_for_long_makes_room(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    for n in range(201):
        await fail(driver, [f"j{n}"], f"Error{'x' * n}: no")

    kinds = await read_error_kinds([driver.partition], 60)
    known = [kind for kind in kinds if kind.total]

    assert len(known) == 200
    assert sum(kind.count for kind in kinds) == 201
    assert not any(kind.last_id == "j0" for kind in known)


async def test_an_hour_with_too_many_kinds_counts_the_rest_together(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await fail(driver, ["a"], "ValueError: no")
    hour = next(
        iter(
            await driver.partition.server.call("KEYS", driver.partition.base.replace("{", "\\{") + "errors:*")
        )
    ).decode()
    many = [part for n in range(5000) for part in (f"0 {n:012x}", 1)]
    await driver.partition.server.call("HSET", hour, *many)

    await fail(driver, ["b"], "KeyError: no")

    kinds = {kind.fingerprint: kind for kind in await read_error_kinds([driver.partition], 60)}
    assert kinds[OTHER_KINDS].count == 1
    assert kinds[fingerprint("KeyError: no")].total == 1


async def test_a_job_whose_worker_died_too_often_has_a_kind_as_well(store: Store) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    for n in range(3):
        (delivery,) = await driver.fetch(f"w{n}")
        await driver.partition.reclaim(f"w{n}", ending("WorkerDied: gone"), [delivery.position])

    (kind,) = await read_error_kinds([driver.partition], 60)
    assert (kind.error, kind.count, kind.last_id) == ("WorkerDied: gone", 1, "a")


@pytest.mark.parametrize("packed", [b"", b"garbage", ending("")])
async def test_an_ending_without_an_error_is_counted_too(store: Store, packed: bytes) -> None:
    driver = await PartitionDriver.open(store)
    await driver.enqueue("a")
    (delivery,) = await driver.fetch()
    outcomes = PartitionOutcomes()
    job = delivery.job(0)
    outcomes.dead(job.position, job.id, job.record, packed)
    await driver.partition.settle(outcomes)

    (kind,) = await read_error_kinds([driver.partition], 60)
    assert kind.count == 1
