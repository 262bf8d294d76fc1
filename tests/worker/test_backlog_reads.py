"""Reads of partitions with a backlog take turns, so that they are few and large. A slow one keeps nobody waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import qbull
from qbull.store.delivery import Delivery
from qbull.worker import fetch
from qbull.worker.fetch import Fetcher
from qbull.worker.turns import Turns
from topology import raised_cluster

LONG = 60.0


async def test_turns_come_one_after_the_other() -> None:
    turns, running, most = Turns(LONG), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with turns.one():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(work() for _ in range(10)))
    assert most == 1


async def test_a_slow_turn_ends_for_the_others_and_only_once() -> None:
    turns, may_end = Turns(0.01), asyncio.Event()

    async def slow() -> None:
        async with turns.one():
            await may_end.wait()

    first = asyncio.create_task(slow())
    await asyncio.sleep(0)
    turns._seconds = LONG
    async with asyncio.timeout(20), turns.one():
        may_end.set()
        await first
        # Its end does not end this turn.
        late = asyncio.create_task(slow())
        await asyncio.sleep(0)
        assert not late.done()
    await late


async def test_a_cancelled_turn_ends() -> None:
    turns = Turns(LONG)

    async def forever() -> None:
        async with turns.one():
            await asyncio.Event().wait()

    first, second = [asyncio.create_task(forever()) for _ in range(2)]
    await asyncio.sleep(0)
    for task in (second, first):
        task.cancel()
    await asyncio.wait([first, second])
    async with asyncio.timeout(20), turns.one():
        pass


@asynccontextmanager
async def a_cluster_with_a_backlog(directory: Path) -> AsyncIterator[qbull.Queue]:
    with raised_cluster(directory) as raised:
        app = qbull.App(raised.url, prefix="test")
        queue = app.queue("work", partitions=12, concurrency=10)

        @queue.task
        async def step() -> None: ...

        await step.enqueue_many([{}] * 2_000)
        yield queue
        await app.close()


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_partitions_of_a_cluster_are_read_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BACKLOG_TURN_SECONDS", LONG)
    running: list[int] = []
    together: list[int] = []
    read = Fetcher._read_backlog

    async def noted(self: Fetcher, more: deque[int], want: int) -> list[Delivery]:
        running.append(want)
        together.append(len(running))
        try:
            return await read(self, more, want)
        finally:
            running.pop()

    monkeypatch.setattr(Fetcher, "_read_backlog", noted)
    async with a_cluster_with_a_backlog(tmp_path) as queue:
        async with queue.app.worker() as worker:
            await worker.drain()
        assert (await queue.stats()).completed == 2_000
    assert together
    assert set(together) == {1}


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_a_read_that_hangs_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging: list[int] = []
    may_go_on = asyncio.Event()
    read = Fetcher._read_backlog

    async def hangs_once(self: Fetcher, more: deque[int], want: int) -> list[Delivery]:
        if not hanging:
            hanging.append(more[0])
            await may_go_on.wait()
        return await read(self, more, want)

    monkeypatch.setattr(Fetcher, "_read_backlog", hangs_once)
    async with a_cluster_with_a_backlog(tmp_path) as queue:
        async with queue.app.worker() as worker:
            async with asyncio.timeout(60):
                while (counts := await queue.stats()).completed < 1_700:
                    await asyncio.sleep(0.02)
            assert hanging
            assert counts.waiting > 0
            may_go_on.set()
            await worker.drain()
        assert (await queue.stats()).completed == 2_000
