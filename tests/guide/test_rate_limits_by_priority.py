"""Priorities inside lanes: among the waiting jobs of a key without an order, the more urgent one starts first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.mark.parametrize(
    "lane",
    [qbull.Lane(limit=1), qbull.Lane(limit=3), qbull.Lane(limit=2, rate=qbull.Rate(4, per=0.5))],
    ids=["one at a time", "limited", "rated"],
)
async def test_an_urgent_job_passes_the_waiting_jobs_of_its_key(app: qbull.App, lane: qbull.Lane) -> None:
    ran: list[str] = []
    exports = app.queue("exports", lane=lane, concurrency=2)

    @exports.task(key="{tenant}")
    async def export(tenant: str, name: str) -> None:
        ran.append(name)
        await asyncio.sleep(0.02)  # The worker hears of a new priority level a moment after its first job.

    await export.options(priority=9).enqueue_many([{"tenant": "a", "name": f"batch {n}"} for n in range(20)])
    await export.options(priority=2).enqueue("a", "interactive")
    async with app.worker() as worker:
        await worker.drain()

    assert len(ran) == 21
    # It does not pass jobs that are in front of the workers or prefetched. Without priorities it is the last.
    assert ran.index("interactive") <= 10


async def test_all_levels_of_a_lane_start_in_their_order(app: qbull.App) -> None:
    ran: list[tuple[int, int]] = []
    work = app.queue("work", lane=qbull.Lane(limit=1), concurrency=1)

    @work.task(key="k")
    async def step(level: int, number: int) -> None:
        ran.append((level, number))

    await step.enqueue(0, 0)
    for number in range(3):
        for level in (5, 10, 1, 6, 4):
            await step.options(priority=level).enqueue(level, number)
    async with app.worker() as worker:
        await worker.drain()

    assert ran == [(0, 0), *((level, number) for level in (1, 4, 5, 6, 10) for number in range(3))]


@pytest.mark.parametrize(
    "settings", [{"order": "key"}, {"order": "key", "lane": qbull.Lane(rate=qbull.Rate(50, per=0.5))}]
)
async def test_an_ordered_lane_ignores_priorities(app: qbull.App, settings: dict[str, Any]) -> None:
    ran: list[int] = []
    work = app.queue("work", **settings)

    @work.task(key="k")
    async def step(number: int) -> None:
        ran.append(number)

    for number in range(20):
        await step.options(priority=1 + (7 * number) % 10).enqueue(number)
    async with app.worker() as worker:
        await worker.drain()

    assert ran == list(range(20))


async def test_ranked_jobs_are_cancelled_retried_and_counted_like_others(
    app: qbull.App, store: Store
) -> None:
    ran: list[int] = []
    work = app.queue(
        "work", lane=qbull.Lane(limit=1), retry=qbull.Retry(attempts=2, backoff="fixed", delay=0.05)
    )

    @work.task(key="k")
    async def step(number: int) -> None:
        ran.append(number)
        if number == 3 and ran.count(3) == 1:
            raise ConnectionError("away")

    jobs = [await step.options(priority=1 + number % 3).enqueue(number) for number in range(9)]
    assert (await work.stats()).waiting == 9
    [report, *_] = (await work.job(jobs[8].id).why()).reasons
    assert report.code in ("no-worker", "behind")
    await jobs[4].cancel()
    await jobs[8].cancel()
    found = await work.jobs("waiting", 0, 50)
    assert {info.id for info in found} == {job.id for n, job in enumerate(jobs) if n not in (4, 8)}
    async with app.worker() as worker:
        await worker.drain()

    assert sorted(ran) == [0, 1, 2, 3, 3, 5, 6, 7]
    assert await store.server.call("KEYS", "*lane:*") == []
    assert await store.server.call("KEYS", "*ranked*") == []


async def test_jobs_of_a_ranked_lane_survive_a_change_of_partitions(app: qbull.App) -> None:
    ran: list[str] = []
    work = app.queue("work", lane=qbull.Lane(limit=1), partitions=2)

    @work.task(key="{key}")
    async def step(key: str, name: str) -> None:
        ran.append(name)

    for key in "abcd":
        await step.options(priority=9).enqueue_many([{"key": key, "name": f"{key}{n}"} for n in range(5)])
        await step.options(priority=1).enqueue(key, f"{key} urgent")
    await work.repartition(3)
    async with app.worker() as worker:
        await worker.drain()

    assert len(ran) == 24

    async def all_completed() -> bool:
        return (await work.stats()).completed == 24

    await eventually(all_completed)
