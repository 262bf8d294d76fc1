"""Every listing says when a job was enqueued and, if it runs, when it started; filters use the same times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from qbull.core.record import State

SOON = timedelta(minutes=10)


class Shop:
    """Jobs in every state before their end: one runs of each kind, others wait."""

    def __init__(self, app: qbull.App) -> None:
        self.plain = app.queue("plain", concurrency=1)
        self.ordered = app.queue("ordered", order="key", concurrency=1)
        self.running = asyncio.Semaphore(0)
        self.go_on = asyncio.Event()

        async def work(number: int) -> None:
            self.running.release()
            await self.go_on.wait()

        self.tasks = [
            self.plain.task(name="work")(work),
            self.ordered.task(name="work", key="k")(work),
        ]

    async def fill(self) -> None:
        for task in self.tasks:
            for number in range(3):
                await task.enqueue(number)
            await task.options(delay=3600).enqueue(9)


@pytest.fixture
async def shop(app: qbull.App) -> AsyncIterator[Shop]:
    shop = Shop(app)
    await shop.fill()
    async with app.worker():
        async with asyncio.timeout(30):
            await shop.running.acquire()
            await shop.running.acquire()
        yield shop
        shop.go_on.set()
    for queue in (shop.plain, shop.ordered):
        for state in ("waiting", "delayed"):
            for info in await queue.jobs(state, 0, 10):
                await queue.job(info.id).remove()


@pytest.mark.parametrize("state", ["active", "waiting", "delayed"])
async def test_every_listing_says_when_a_job_was_enqueued(shop: Shop, state: State) -> None:
    for queue in (shop.plain, shop.ordered):
        listed = await queue.jobs(state, 0, 10)
        found = (await queue.search(state)).jobs
        assert listed
        assert {info.id for info in listed} == {info.id for info in found}
        for info in (*listed, *found):
            one = await queue.job(info.id).info()
            assert one is not None
            for seen in (info, one):
                assert abs(datetime.now(UTC) - seen.created_at) < SOON


async def test_a_running_job_says_when_it_started(shop: Shop) -> None:
    for queue in (shop.plain, shop.ordered):
        [listed] = await queue.jobs("active")
        [found] = (await queue.search("active")).jobs
        one = await queue.job(listed.id).info()
        assert one is not None
        for seen in (listed, found, one):
            assert seen.started_at is not None
            assert seen.created_at <= seen.started_at + timedelta(milliseconds=5)
            assert abs(datetime.now(UTC) - seen.started_at) < SOON
        [waiting, *_] = await queue.jobs("waiting")
        assert waiting.started_at is None


async def test_a_filter_finds_running_jobs_by_time(shop: Shop) -> None:
    before = datetime.now(UTC) - SOON
    for queue in (shop.plain, shop.ordered):
        for state in ("active", "waiting", "delayed"):
            everything = (await queue.search(state)).jobs
            assert (await queue.search(state, after=before)).jobs == everything
            assert (await queue.search(state, before=before)).jobs == []
