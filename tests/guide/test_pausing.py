"""Pausing: a paused queue takes jobs and begins none, until somebody resumes it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from conftest import eventually


async def test_a_paused_queue_takes_jobs_and_begins_none(app: qbull.App) -> None:
    email, reports = app.queue("email"), app.queue("reports")

    @email.task
    async def send() -> str:
        return "sent"

    @reports.task
    async def render() -> str:
        return "rendered"

    await email.pause()
    paused = await send.enqueue()
    async with app.worker():
        await (await render.enqueue()).result(timeout=10)

        assert await paused.state() == "waiting"
        assert (await email.stats()).paused
        assert not (await reports.stats()).paused


async def test_a_resumed_queue_goes_on(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> str:
        return "sent"

    async with app.worker():
        await email.pause()
        job = await send.enqueue()
        await email.resume()

        assert await job.result(timeout=10) == "sent"
        assert not (await email.stats()).paused


async def test_what_runs_ends_and_what_was_fetched_goes_back(app: qbull.App) -> None:
    begun: list[int] = []
    turns = asyncio.Semaphore(10)
    email = app.queue("email", concurrency=2)

    @email.task
    async def send(n: int) -> int:
        begun.append(n)
        await turns.acquire()
        return n

    jobs = await send.enqueue_many([{"n": n} for n in range(60)])
    async with app.worker():
        await jobs[9].result(timeout=10)
        await email.pause()

        async def all_back() -> bool:
            stats = await email.stats()
            if stats.active:
                turns.release()  # what runs may end; nothing more must begin
            return stats.active == 0

        await eventually(all_back)
        stats = await email.stats()
        assert (stats.completed, stats.waiting) == (len(begun), 60 - len(begun))
        assert 10 <= len(begun) < 60
        assert await jobs[begun[-1]].result(timeout=10) == begun[-1]


async def test_the_rest_of_a_train_goes_back_in_order(app: qbull.App) -> None:
    ran: list[int] = []
    turns = asyncio.Semaphore(5)
    chat = app.queue("chat", order="key")

    @chat.task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        await turns.acquire()
        ran.append(n)

    jobs = await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(40)])
    async with app.worker():
        await jobs[4].result(timeout=10)
        await chat.pause()

        async def all_back() -> bool:
            stats = await chat.stats()
            if stats.active:
                turns.release()  # what runs may end; the next one must not begin
            return stats.active == 0

        await eventually(all_back)
        assert ran == list(range(len(ran))) and len(ran) < 40
        assert (await chat.stats()).waiting == 40 - len(ran)

        await chat.resume()
        for _ in jobs:
            turns.release()
        await jobs[-1].result(timeout=10)
    assert ran == list(range(40))


async def test_a_pause_survives_workers_that_start_and_stop(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> str:
        return "sent"

    job = await send.enqueue()
    await email.pause()
    for _ in range(2):
        async with app.worker() as worker:
            await worker.drain()

    assert await job.state() == "waiting"


async def test_delayed_jobs_stay_delayed(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def remind() -> str:
        return "now"

    await email.pause()
    later = await remind.options(delay=3600).enqueue()
    soon = await remind.options(delay=0.01).enqueue()
    async with app.worker():

        async def its_time_is_over() -> bool:
            info = await soon.info()
            assert info is not None and info.due_at is not None
            return datetime.now(UTC) - info.due_at > timedelta(seconds=0.2)

        await eventually(its_time_is_over)
        assert [await job.state() for job in (soon, later)] == ["delayed", "delayed"]

        await email.resume()
        assert await soon.result(timeout=10) == "now"
        assert await later.state() == "delayed"


async def test_draining_does_not_wait_for_a_paused_queue(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> None: ...

    await email.pause()
    await send.enqueue()
    async with app.worker() as worker, asyncio.timeout(10):
        await worker.drain()


async def test_pausing_twice_is_pausing_once(app: qbull.App) -> None:
    email = app.queue("email")

    await email.pause()
    await email.pause()
    await email.resume()

    assert not (await email.stats()).paused
    assert [change.setting for change in await email.changes()] == ["paused", "paused"]


async def test_a_pause_can_wait_until_nothing_runs(app: qbull.App) -> None:
    email = app.queue("email", concurrency=2)
    running, go_on = asyncio.Semaphore(0), asyncio.Event()
    ended: list[int] = []

    @email.task
    async def send(n: int) -> None:
        running.release()
        await go_on.wait()
        ended.append(n)

    for n in range(5):
        await send.enqueue(n)
    async with app.worker():
        for _ in range(2):
            await asyncio.wait_for(running.acquire(), 30)
        with pytest.raises(qbull.ResultTimeout, match=r"is paused, but 2 of its jobs still run after 0\.2 s"):
            await email.pause(wait=0.2)
        waiting = asyncio.create_task(email.pause(wait=60))
        go_on.set()
        await waiting
        after = list(ended)
        assert (await email.stats()).active == 0

    assert ended == after, "nothing has started since"
    assert len(ended) == 2
    assert (await email.stats()).waiting == 3


async def test_a_wait_must_be_a_duration(app: qbull.App) -> None:
    with pytest.raises(qbull.ConfigError, match="give a number of seconds from 0"):
        await app.queue("email").pause(wait=-1)
