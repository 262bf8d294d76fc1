"""Fairness: one key with very many jobs does not stand in the way of another's first. By position, not by time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qbull
from conftest import eventually

CROWD = 100_000


@pytest.mark.timeout(180)
@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_crowd_delays_the_first_job_of_another_by_a_few_jobs(
    app: qbull.App, concurrency: int
) -> None:
    ran: list[str] = []
    exports = app.queue("exports", lane=qbull.Lane(limit=2), concurrency=concurrency)

    @exports.task(key="{tenant}")
    async def export(tenant: str) -> None:
        ran.append(tenant)

    await export.enqueue_many([{"tenant": "crowd"}] * CROWD)
    modest = await export.enqueue("modest")
    async with app.worker():

        async def it_ran() -> bool:
            return "modest" in ran

        await eventually(it_ran)
        await exports.pause()
        await modest.result(timeout=20)

    assert ran.index("modest") <= 5
    await app._client().store.server.call("FLUSHALL")  # looking each of them up afterwards would take minutes


@pytest.mark.parametrize("settings", [{"lane": qbull.Lane(limit=2)}, {"order": "key"}])
async def test_one_that_comes_while_the_crowd_is_served_is_begun_soon(
    app: qbull.App, settings: dict[str, Any]
) -> None:
    ran: list[str] = []
    exports = app.queue("exports", concurrency=1, **settings)

    @exports.task(key="{tenant}")
    async def export(tenant: str) -> None:
        await asyncio.sleep(0.02)
        ran.append(tenant)

    await export.enqueue_many([{"tenant": "crowd"}] * 2000)
    async with app.worker():

        async def some_ran() -> bool:
            return len(ran) >= 20

        await eventually(some_ran)
        came = len(ran)
        await (await export.enqueue("modest")).result(timeout=20)
        await exports.pause()

    assert ran.index("modest") - came <= 16


async def test_an_urgent_job_overtakes_all_but_what_a_worker_holds(app: qbull.App) -> None:
    ran: list[str] = []
    email = app.queue("email", concurrency=1)

    @email.task
    async def send(name: str) -> None:
        await asyncio.sleep(0.01)
        ran.append(name)

    await send.options(priority=1).enqueue("the first of its priority")
    await send.options(priority=9).enqueue_many([{"name": f"bulk {n}"} for n in range(500)])
    async with app.worker():

        async def some_ran() -> bool:
            return len(ran) > 20

        await eventually(some_ran)
        came = len(ran)
        await (await send.options(priority=1).enqueue("urgent")).result(timeout=20)
        await email.pause()

    assert ran.index("urgent") - came <= 10, "a worker holds about 50 ms of work"


async def test_jobs_that_wait_for_a_retry_hold_up_nobody_of_their_tenant(app: qbull.App) -> None:
    exports = app.queue("exports", lane=qbull.Lane(limit=2), retry=qbull.Retry(delays=(3600,)))
    ran: list[str] = []

    @exports.task(key="{tenant}")
    async def export(tenant: str, month: str) -> None:
        if month == "broken":
            raise ConnectionError
        ran.append(month)

    failing = await export.enqueue_many([{"tenant": "acme", "month": "broken"}] * 2)
    months = [await export.enqueue("acme", f"month {n}") for n in range(5)]
    async with app.worker():
        for job in months:
            await job.result(timeout=20)

    assert sorted(ran) == [f"month {n}" for n in range(5)]
    assert [await job.state() for job in failing] == ["delayed", "delayed"]


async def test_what_was_given_back_does_not_overtake_urgent_jobs_for_long(app: qbull.App) -> None:
    ran: list[str] = []
    sms = app.queue("sms", concurrency=4, rate=qbull.Rate(4, per=0.5))

    @sms.task
    async def send(name: str) -> None:
        ran.append(name)

    await send.options(priority=9).enqueue_many([{"name": f"bulk {n}"} for n in range(40)])
    async with app.worker() as worker:

        async def throttled() -> bool:
            return len(ran) == 4

        await eventually(throttled)
        await send.options(priority=1).enqueue_many([{"name": "urgent"}] * 2)
        await worker.drain()

    assert ran.index("urgent") <= 8
