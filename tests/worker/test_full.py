"""A server at its memory limit takes no new jobs, and lets everything pass that makes it emptier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store

pytestmark = pytest.mark.timeout(120)


class Full:
    """A server of a test's own. `fill` leaves no room on it."""

    def __init__(self, directory: Path) -> None:
        self.url = f"embedded://{directory}"
        self.store = Store(self.url, "test")

    async def fill(self) -> None:
        await self.store.server.call("CONFIG", "SET", "maxmemory", 1)


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Full]:
    full = Full(tmp_path)
    yield full
    await full.store.close()


async def test_a_worker_that_starts_on_a_full_server_works_it_off(full: Full) -> None:
    """Every worker that was started to help was refused, and one that ran was refused what its jobs said."""
    before = qbull.App(full.url, prefix="test")
    job = await before.queue("work").task(name="step")(_nothing).enqueue()
    after = qbull.App(full.url, prefix="test")

    @after.queue("work", concurrency=3).task
    async def step() -> int:
        await qbull.current_job().progress(50)
        await qbull.current_job().log("half of it")
        return 1

    @after.queue("new").cron(every=3600)
    async def hourly() -> None: ...

    await full.fill()
    with pytest.raises(qbull.ServerRefused, match="out of memory"):
        await step.enqueue()
    async with after.worker() as worker:
        await worker.drain()

    info = await job.info()
    assert info is not None
    assert (info.state, info.progress) == ("completed", 50)
    assert [line.text for line in await job.logs()] == ["half of it"]
    assert [one.name for one in await after.schedules.list()] == ["hourly"]
    await before.close()
    await after.close()


async def test_a_result_is_waited_for_on_a_full_server(full: Full) -> None:
    app = qbull.App(full.url, prefix="test")
    job = await app.queue("work").task(name="step")(_nothing).enqueue()
    await full.fill()

    async def is_waited_for() -> bool:
        return bool(await full.store.server.call("EXISTS", full.store.names.partition("work", 0) + "waiters"))

    waiting = asyncio.create_task(job.result(timeout=60))
    await eventually(is_waited_for)
    async with app.worker():
        assert await waiting == 0
    await app.close()


async def _nothing() -> int:
    return 0
