"""The specification of keeping: whatever way jobs end and however many together, no more stay than the queue says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from partition_driver import DONE, PartitionDriver

from qbull.config import Keep
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes

MOST = 1000
BUNDLE = 16
TOGETHER = 100


async def cancelled(driver: PartitionDriver, ids: list[str]) -> int:
    await driver.enqueue(*ids)
    await driver.cancel(*ids)
    return (await driver.counts()).cancelled


async def expired(driver: PartitionDriver, ids: list[str]) -> int:
    await driver.enqueue(*ids, when="0 3600000")
    await driver.let_end_come(*ids)
    await driver.partition.promote()
    return (await driver.counts()).cancelled


async def failed(driver: PartitionDriver, ids: list[str]) -> int:
    await driver.enqueue(*ids)
    await driver.fail(*ids)
    return (await driver.counts()).failed


async def done_in_trains(driver: PartitionDriver, ids: list[str]) -> int:
    """Those of a train end together, so an entry has two of them here."""
    for n in range(0, len(ids), 2):
        await driver.enqueue(f"first-{ids[n]}", *ids[n : n + 2], key=ids[n])
    await driver.complete_together()
    outcomes = PartitionOutcomes()
    for train in await driver.fetch():
        for job in train.jobs():
            outcomes.done_in_train(job.position, job.id, job.record, DONE)
    assert await driver.partition.settle(outcomes) == []
    return (await driver.counts()).completed


async def done(driver: PartitionDriver, ids: list[str]) -> int:
    await driver.enqueue(*ids)
    await driver.complete_together()
    return (await driver.counts()).completed


@pytest.mark.parametrize("end", [cancelled, expired, failed, done_in_trains, done])
@pytest.mark.parametrize("most", [MOST, 900])
async def test_no_more_are_kept_than_the_queue_says(
    store: Store, end: Callable[[PartitionDriver, list[str]], Awaitable[int]], most: int
) -> None:
    driver = await PartitionDriver.open(store, order="key", keep=Keep(completed=most, failed=most))

    for start in range(0, 2 * MOST, TOGETHER):
        kept = await end(driver, [f"job-{n}" for n in range(start, start + TOGETHER)])

    assert most <= kept < most + (BUNDLE if most >= MOST else 1)


async def test_old_ones_go_however_few_an_entry_has(store: Store) -> None:
    driver = await PartitionDriver.open(store, keep=Keep(failed_for=0))
    ids = [f"job-{n}" for n in range(TOGETHER)]
    await driver.enqueue(*ids)
    await driver.fail(*ids)

    await driver.partition.promote()

    assert (await driver.counts()).failed == 0
