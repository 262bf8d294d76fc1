"""The specification of keeping: whatever way jobs end and however many together, no more stay than the queue says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from desk import DONE, Desk

from qbull.config import Keep
from qbull.store.store import Store
from qbull.store.verbs.outcomes import PartitionOutcomes

MOST = 1000
BUNDLE = 16
TOGETHER = 100


async def cancelled(desk: Desk, ids: list[str]) -> int:
    await desk.enqueue(*ids)
    await desk.cancel(*ids)
    return (await desk.counts()).cancelled


async def expired(desk: Desk, ids: list[str]) -> int:
    await desk.enqueue(*ids, when="0 3600000")
    await desk.let_end_come(*ids)
    await desk.partition.promote()
    return (await desk.counts()).cancelled


async def failed(desk: Desk, ids: list[str]) -> int:
    await desk.enqueue(*ids)
    await desk.fail(*ids)
    return (await desk.counts()).failed


async def done_in_trains(desk: Desk, ids: list[str]) -> int:
    """Those of a train end together, so an entry has two of them here."""
    for n in range(0, len(ids), 2):
        await desk.enqueue(f"first-{ids[n]}", *ids[n : n + 2], key=ids[n])
    await desk.complete_together()
    outcomes = PartitionOutcomes()
    for train in await desk.fetch():
        for job in train.jobs():
            outcomes.done_in_train(job.position, job.id, job.record, DONE)
    assert await desk.partition.settle(outcomes) == []
    return (await desk.counts()).completed


async def done(desk: Desk, ids: list[str]) -> int:
    await desk.enqueue(*ids)
    await desk.complete_together()
    return (await desk.counts()).completed


@pytest.mark.parametrize("end", [cancelled, expired, failed, done_in_trains, done])
@pytest.mark.parametrize("most", [MOST, 900])
async def test_no_more_are_kept_than_the_queue_says(
    store: Store, end: Callable[[Desk, list[str]], Awaitable[int]], most: int
) -> None:
    desk = await Desk.open(store, order="key", keep=Keep(completed=most, failed=most))

    for start in range(0, 2 * MOST, TOGETHER):
        kept = await end(desk, [f"job-{n}" for n in range(start, start + TOGETHER)])

    assert most <= kept < most + (BUNDLE if most >= MOST else 1)


async def test_old_ones_go_however_few_an_entry_has(store: Store) -> None:
    desk = await Desk.open(store, keep=Keep(failed_for=0))
    ids = [f"job-{n}" for n in range(TOGETHER)]
    await desk.enqueue(*ids)
    await desk.fail(*ids)

    await desk.partition.promote()

    assert (await desk.counts()).failed == 0
