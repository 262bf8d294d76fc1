"""Concurrency limits: how many jobs of a queue, or of a key, run at a time over all workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import qbull
from conftest import eventually


async def test_never_more_jobs_run_than_the_limit_over_all_workers(app: qbull.App) -> None:
    running = most = ran = 0
    reports = app.queue("reports", max_active=3, concurrency=5, partitions=4)

    @reports.task
    async def render() -> None:
        nonlocal running, most, ran
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        ran += 1

    await render.enqueue_many([{}] * 60)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(app.worker()) for _ in range(3)]
        await asyncio.gather(*(worker.drain() for worker in workers))

    assert (ran, most) == (60, 3)


async def test_a_worker_without_a_place_holds_no_jobs(app: qbull.App) -> None:
    let_go = asyncio.Event()
    reports = app.queue("reports", max_active=2, concurrency=5)

    @reports.task
    async def render() -> None:
        await let_go.wait()

    await render.enqueue_many([{}] * 6)
    async with app.worker() as one, app.worker() as two:

        async def two_run_and_four_wait() -> bool:
            stats = await reports.stats()
            return (stats.active, stats.waiting) == (2, 4)

        await eventually(two_run_and_four_wait)
        let_go.set()
        await asyncio.gather(one.drain(), two.drain())


async def test_workers_take_turns_where_places_are_scarce(app: qbull.App) -> None:
    ran: list[str] = []
    reports = app.queue("reports", max_active=1, partitions=2)

    @reports.task(key="{tenant}")
    async def render(tenant: str) -> None:
        ran.append(tenant)

    jobs = await render.enqueue_many([{"tenant": f"t{n}"} for n in range(40)])
    partition = {f"t{n}": info.partition for n, job in enumerate(jobs) if (info := await job.info())}
    busy = next(tenant for tenant, number in partition.items() if number == 0)
    quiet = next(tenant for tenant, number in partition.items() if number == 1)
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())
        await reports.pause()
        jobs = await render.enqueue_many([{"tenant": busy}] * 300 + [{"tenant": quiet}] * 5)
        ran.clear()
        await reports.resume()
        await asyncio.gather(*(job.result(timeout=60) for job in jobs))

    assert len(ran) == 305
    assert max(at for at, tenant in enumerate(ran) if tenant == quiet) < 100


async def test_the_limit_can_be_changed_while_everything_runs(app: qbull.App) -> None:
    three = asyncio.Barrier(3)
    reports = app.queue("reports", max_active=1, concurrency=3)

    @reports.task
    async def meet() -> None:
        await three.wait()

    jobs = await meet.enqueue_many([{}, {}, {}])
    async with app.worker():
        await reports.configure(max_active=3)

        for job in jobs:
            await job.result(timeout=10)


async def test_what_runs_counts_when_a_limit_is_set_later(app: qbull.App) -> None:
    turns = asyncio.Semaphore(0)
    reports = app.queue("reports", concurrency=4)

    @reports.task
    async def render() -> None:
        await turns.acquire()

    await render.enqueue_many([{}] * 40)
    async with app.worker() as worker:

        async def four_run() -> bool:
            return (await reports.stats()).active == 4

        await eventually(four_run)
        await reports.configure(max_active=1)

        async def one_runs() -> bool:
            stats = await reports.stats()
            if stats.active > 1:
                turns.release()
            return (stats.active, stats.waiting > 0) == (1, True)

        await eventually(one_runs)
        for _ in range(40):
            turns.release()
        await worker.drain()


async def test_a_queue_with_a_rate_and_a_limit_keeps_both(app: qbull.App) -> None:
    running = most = 0
    sms = app.queue("sms", max_active=2, rate=qbull.Rate(20, per=0.5), concurrency=5)

    @sms.task
    async def send() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    await send.enqueue_many([{}] * 50)
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert most == 2


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3)])
async def test_lanes_follow_a_limit_that_a_deploy_has_changed(
    app: qbull.App, server_url: str, before: int, after: int
) -> None:
    running = 0
    beside: list[int] = []

    async def export(tenant: str) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(0.005)
        beside.append(running)
        running -= 1

    old = app.queue("export", lane=qbull.Lane(limit=before), concurrency=10).task(key="{tenant}")(export)
    await old.enqueue_many([{"tenant": "a"}] * 30)
    deployed = qbull.App(server_url, prefix="test")
    deployed.queue("export", lane=qbull.Lane(limit=after), concurrency=10).task(key="{tenant}")(export)
    async with deployed.worker() as worker:
        await worker.drain()
    await deployed.close()

    assert len(beside) == 30
    assert max(beside[:5]) <= max(before, after)
    assert max(beside[10:]) == after


def test_a_wrong_limit_is_refused(app: qbull.App) -> None:
    with pytest.raises(qbull.ConfigError, match=r'queue "reports": max_active=0: give a whole number from 1'):
        app.queue("reports", max_active=0)
