"""A worker is told to stop while a plain function runs: nobody else gets its job before the function is really over."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.mark.timeout(60)
async def test_a_key_stays_in_order_when_a_plain_function_outlives_the_grace_period(
    log: Path, server_url: str
) -> None:
    async with WorkerProgram(server_url, log, ("--grace", "1")) as old:
        await everyday_app.plain.enqueue(key="k", number=0, seconds=60)
        await everyday_app.plain.enqueue(key="k", number=1)
        await eventually(lambda: has_lines(log, 1, "start"))
        [first] = lines(log)
        async with WorkerProgram(server_url, log):
            old.process.terminate()
            stopped = time.time()
            ended = await old.ended()
            await eventually(lambda: has_lines(log, 2, "start"))
            [again] = lines(log, "start")[1:2]
            assert (again.number, again.attempt) == (0, 1)
            assert ended - stopped < 1 + 2 + 1.5, (
                "grace + 2 s, and what a busy machine takes to end processes"
            )
            await eventually(lambda: has_lines(log, 2, "end"))

    assert lines(log, "overlap") == []
    assert [(line.number, line.pid == first.pid) for line in lines(log, "end")] == [(0, False), (1, False)]


@pytest.mark.timeout(180)
async def test_nobody_takes_a_stopping_worker_for_dead_while_its_function_runs(
    log: Path, server_url: str
) -> None:
    """Its supervisor sends heartbeats until the process has ended."""
    environment = {"MIN_IDLE_TIME_MS": "3000"}
    async with WorkerProgram(server_url, log, ("--grace", "7"), environment) as old:
        await everyday_app.plain.enqueue(key="k", number=0, seconds=600)
        await eventually(lambda: has_lines(log, 1, "start"), within=60)
        async with WorkerProgram(server_url, log, environment=environment) as new:
            old.process.terminate()
            ended = await old.ended()
            await eventually(lambda: has_lines(log, 1, "end"), within=60)

    assert lines(log, "overlap") == []
    [again] = lines(log, "start")[1:]
    assert again.at > ended - 2, "the process ends at most so long before its supervisor"
    assert "has fallen silent" not in new.text()


@pytest.mark.timeout(120)
async def test_nobody_takes_a_stopping_worker_inside_a_program_for_dead(
    server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIN_IDLE_TIME_MS", "2000")
    started, may_end = list[int](), threading.Event()
    apps = [qbull.App(server_url, prefix="test") for _ in range(2)]
    for number, app in enumerate(apps):

        @app.queue("work", order="key").task(key="{key}", name="wait")
        def wait(key: str, number: int = number) -> None:
            started.append(number)
            may_end.wait(60)

    stopping, other = (app.worker() for app in apps)
    await stopping.start()
    job = await wait.enqueue(key="k")
    await eventually(lambda: _any(started))
    async with other:
        stop = asyncio.create_task(stopping.stop(grace=0.1))
        # Longer than the time after which a silent worker counts as dead.
        await asyncio.sleep(5)
        assert started == [0] and not stop.done()
        may_end.set()
        await stop
        await job.result(timeout=30)
    for app in apps:
        await app.close()

    assert started == [0]


async def _any(found: list[int]) -> bool:
    return bool(found)


@pytest.mark.timeout(60)
async def test_a_worker_inside_a_program_keeps_a_plain_function_until_it_returns(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERYDAY_LOG", str(log))
    worker = everyday_app.app.worker()
    await worker.start()
    first = await everyday_app.plain.enqueue(key="k", number=0, seconds=3)
    second = await everyday_app.plain.enqueue(key="k", number=1)
    await eventually(lambda: has_lines(log, 1, "start"))

    async with everyday_app.app.worker():
        await worker.stop(grace=0.2)
        await second.result(timeout=20)

    assert [(line.word, line.number, line.attempt) for line in lines(log)] == [
        ("start", 0, 1),
        ("end", 0, 1),
        ("start", 1, 1),
        ("end", 1, 1),
    ]
    assert await first.state() == "completed"
