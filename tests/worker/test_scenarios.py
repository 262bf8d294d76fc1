"""The scenarios of docs/scaling.md, run: who has which partitions, and what moves when workers come, go and are restarted."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from partitioned_queue import PartitionedQueue, make_partitioned_queue  # noqa: F401 - a fixture

import qbull
from conftest import eventually
from qbull.core.sharing import Sharing, static_partitions
from qbull.store.store import Store
from qbull.worker.worker import Worker

SCENARIOS = [(16, 8), (64, 16), (8, 8)]
FAST = 2.0
"""Seconds within which a worker that joins has its share."""


@pytest.fixture
def by_bell_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds out by looking now and then; what happens, happens because somebody was told."""
    monkeypatch.setattr("qbull.worker.lease.LEASE_POLL_SECONDS", 3600.0)


def sharing(mode: str, number: int, workers: int, each: int) -> Sharing:
    match mode:
        case "static":
            return Sharing("static", instance=number, instances=workers)
        case "leased":
            return Sharing("leased", most=each)
    return Sharing()


@pytest.mark.parametrize("mode", ["auto", "leased", "static"])
@pytest.mark.parametrize(("partitions", "workers"), SCENARIOS)
async def test_each_worker_holds_its_even_share(
    app: qbull.App, store: Store, partitions: int, workers: int, mode: str
) -> None:
    shared = PartitionedQueue(app, store, partitions)
    each = partitions // workers
    async with AsyncExitStack() as stack:
        for number in range(workers):
            await stack.enter_async_context(shared.worker(sharing(mode, number, workers, each)))

        shares = await shared.shared_out(*[each] * workers)

        if mode == "static":
            assert shares == sorted(static_partitions(partitions, i, workers, 0, 1) for i in range(workers))
        jobs = await shared.step.enqueue_many([{"key": f"k{k}", "n": 0} for k in range(4 * partitions)])
        for job in jobs:
            await job.result(timeout=30)


@pytest.mark.usefixtures("by_bell_only")
async def test_a_worker_that_joins_takes_its_fair_share_soon_and_nothing_else_moves(
    shared: PartitionedQueue,
) -> None:
    took = []
    async with AsyncExitStack() as stack:
        for others in range(1, 6):
            await stack.enter_async_context(shared.worker())
            before = await even(shared, others)
            began = time.monotonic()
            async with shared.worker() as newcomer:
                after = await even(shared, others + 1)
                took.append(time.monotonic() - began)

            gained = after.pop(newcomer.id)
            assert len(gained) >= 16 // (others + 1)
            assert all(after[id] <= before[id] for id in before), "one that stays gets nothing new"
            assert sum(len(before[id] - after[id]) for id in before) == len(gained)
            await even(shared, others)

    assert sorted(took)[len(took) // 2] < FAST


@pytest.mark.usefixtures("by_bell_only")
async def test_a_worker_that_stops_leaves_its_share_and_nothing_else_moves(shared: PartitionedQueue) -> None:
    async with shared.worker(), shared.worker(), shared.worker():
        async with shared.worker() as leaving:
            before = await even(shared, 4)

        after = await even(shared, 3)

    del before[leaving.id]
    assert all(before[id] <= after[id] for id in after), "one that stays loses nothing"


@pytest.mark.timeout(120)
async def test_the_instance_count_is_raised_by_a_rolling_restart_under_load(shared: PartitionedQueue) -> None:
    keys, rounds = 48, 60
    old = {i: await started(shared, Sharing("static", instance=i, instances=4)) for i in range(4)}
    new: dict[int, Worker] = {}
    load = asyncio.create_task(produce(shared, keys, rounds))
    try:
        await ran(shared, 1)
        for i in range(4, 8):
            new[i] = await started(shared, Sharing("static", instance=i, instances=8))
        for i in range(4):
            await ran(shared, (i + 1) * rounds // 8)
            await old.pop(i).stop()
            new[i] = await started(shared, Sharing("static", instance=i, instances=8))
        await load

        assert await shared.shared_out(*[2] * 8) == [[i, i + 8] for i in range(8)]
        await ran(shared, rounds)
    finally:
        load.cancel()
        for worker in (*old.values(), *new.values()):
            await worker.stop()

    assert shared.ran == {f"k{k}": list(range(rounds)) for k in range(keys)}
    assert (await shared.queue.stats()).totals["completed"] == keys * rounds


async def even(shared: PartitionedQueue, workers: int) -> dict[str, set[int]]:
    """Wait until so many workers have even shares of all partitions."""
    sizes = [16 // workers + (n < 16 % workers) for n in range(workers)]
    await shared.shared_out(*sizes)
    return await shared.held()


async def started(shared: PartitionedQueue, how: Sharing) -> Worker:
    worker = Worker(shared.app._make_store, shared.app._assignments(), sharing=how)
    await worker.start()
    return worker


async def produce(shared: PartitionedQueue, keys: int, rounds: int) -> None:
    """Never far ahead of the workers, so that they are restarted in the middle of it."""
    for n in range(rounds):
        await shared.step.enqueue_many([{"key": f"k{k}", "n": n} for k in range(keys)])
        await ran(shared, n - 20, some=True)


async def ran(shared: PartitionedQueue, rounds: int, *, some: bool = False) -> None:
    """Wait until the keys, or some of them, have come so far."""

    async def far() -> bool:
        lengths = [len(numbers) for numbers in shared.ran.values()] or [0]
        return (max(lengths) if some else sum(lengths) / 48) >= rounds

    await eventually(far, within=60)
