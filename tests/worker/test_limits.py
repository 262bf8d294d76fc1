"""Limits over all workers: exact over real processes, on a cluster, and when workers die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import logging_app
import pytest
from test_rate_limits import most_in_any
from worker_processes import WorkerProcesses, runs

import qbull
from conftest import eventually, strays
from qbull.store.store import Store
from qbull.store.verbs.limits import StartToken
from qbull.worker.limiter import Limiter
from topology import raised_cluster


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(logging_app.app, "url", server_url)
    yield tmp_path / "log"
    await logging_app.app.close()


@pytest.mark.timeout(120)
async def test_a_rate_is_exact_over_processes_that_are_killed(log: Path, server_url: str) -> None:
    await logging_app.work.configure(rate=qbull.Rate(50, per=1))
    async with WorkerProcesses(server_url, log, processes=3) as fleet:
        await logging_app.touch.enqueue_many([{"key": f"k{n}"} for n in range(250)])

        async def some_began() -> bool:
            return len(runs(log)) > 80

        await eventually(some_began)
        fleet.kill_one()

        async def nothing_left() -> bool:
            return (await logging_app.work.stats()).unfinished == 0

        await eventually(nothing_left, within=60)

    starts = [run.at for run in runs(log)]
    assert len(starts) >= 250
    assert most_in_any(1.0, starts) <= 50


async def test_the_places_of_a_killed_worker_come_back_with_its_jobs(log: Path, server_url: str) -> None:
    await logging_app.work.configure(max_active=2)
    async with WorkerProcesses(server_url, log, processes=1) as fleet:
        jobs = [await logging_app.step.enqueue(f"k{n}", 0, seconds=0.5) for n in range(4)]

        async def two_began() -> bool:
            return len(runs(log)) >= 2

        await eventually(two_began)
        fleet.kill_one()
        for job in jobs:
            await job.result(timeout=30)

    assert _most_at_a_time(log) == 2


def _most_at_a_time(log: Path) -> int:
    """By what was written: a job that was killed has no end, and its second run counts instead."""
    running: set[str] = set()
    most = 0
    for run in runs(log):
        if run.word == "begin":
            running.discard(run.key)
            running.add(run.key)
        else:
            running.discard(run.key)
        most = max(most, len(running))
    return most


async def test_a_worker_leaves_no_place_and_no_wait_behind(app: qbull.App, store: Store) -> None:
    queue = app.queue("work", max_active=1, rate=qbull.Rate(1000, per=60))

    @queue.task
    async def step() -> None: ...

    async with app.worker() as one, app.worker() as two:
        await step.enqueue_many([{}] * 50)
        await asyncio.gather(one.drain(), two.drain())

    assert await store.server.call("EXISTS", store.names.queue("work") + "places") == 0
    assert await strays(store) == []


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_limits_hold_over_the_partitions_of_a_cluster(tmp_path: Path) -> None:
    starts: list[float] = []
    running = most = 0
    with raised_cluster(tmp_path) as raised:
        app = qbull.App(raised.url, prefix="test")
        queue = app.queue("work", partitions=6, concurrency=5, max_active=4, rate=qbull.Rate(40, per=1))

        @queue.task
        async def step() -> None:
            nonlocal running, most
            starts.append(time.monotonic())
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

        await step.enqueue_many([{}] * 130)
        async with app.worker() as one, app.worker() as two:
            await asyncio.gather(one.drain(), two.drain())
        await app.close()

    assert (len(starts), most) == (130, 4)
    assert most_in_any(1.0, starts) <= 40


async def test_a_job_that_its_queues_rate_lets_not_begin_costs_its_key_no_start(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key has one start in an hour: it would wait for the next."""
    refusals, take_start = 3, Limiter.take_start

    async def reluctantly(limiter: Limiter) -> StartToken | None:
        nonlocal refusals
        refusals -= 1
        return None if refusals >= 0 else await take_start(limiter)

    monkeypatch.setattr(Limiter, "take_start", reluctantly)
    crm = app.queue("crm", lane=qbull.Lane(rate=qbull.Rate(1, per=3600)), rate=qbull.Rate(100))

    @crm.task(key="{tenant}")
    async def sync(tenant: str) -> str:
        return tenant

    async with app.worker():
        assert await (await sync.enqueue("busy")).result(timeout=20) == "busy"
        second = await sync.enqueue("busy")

        async def put_off() -> bool:
            return await second.state() == "delayed"

        await eventually(put_off)
    assert refusals < 0


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_start_of_the_queues_rate_that_has_expired_is_not_used(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The worker stands still between the grant and the first line of the task."""
    queue = app.queue("work", rate=qbull.Rate(1, per=1))
    granted: list[StartToken] = []
    began: list[float] = []
    start_now = Limiter.start_now

    def slowly(limiter: Limiter) -> StartToken | None:
        start = start_now(limiter)
        if start is not None:
            granted.append(start)
            if len(granted) == 1:
                time.sleep(0.2)
        return start

    take_start = Limiter.take_start

    async def taken(limiter: Limiter) -> StartToken | None:
        start = await take_start(limiter)
        if start is not None:
            granted.append(start)
        return start

    monkeypatch.setattr(Limiter, "start_now", slowly)
    monkeypatch.setattr(Limiter, "take_start", taken)

    async def note() -> None:
        began.append(time.monotonic())

    def note_in_thread() -> None:
        began.append(time.monotonic())

    step = queue.task(name="step")(note if kind == "coroutine" else note_in_thread)
    async with app.worker():
        await (await step.enqueue()).result(timeout=20)
    assert len(began) == 1
    assert any(start.after <= began[0] <= start.latest for start in granted)
    assert began[0] > granted[0].latest
