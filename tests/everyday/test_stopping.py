"""A worker is told to stop while a plain function runs: nobody else gets its job before the function is really over."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

from conftest import eventually
from qbull.store.store import Store


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(everyday_app.app, "url", server_url)
    yield tmp_path / "log"
    await everyday_app.app.close()


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
