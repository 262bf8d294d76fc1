"""Processes of `cpu=True` tasks end with their worker, and a job that ends its process is logged as a crash."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import everyday_app
import pytest
from program import WorkerProgram, children_of, has_lines, lines

import qbull
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
@pytest.mark.parametrize("who", ["worker", "supervisor", "both"])
async def test_a_cpu_process_ends_with_its_worker_before_others_get_its_job(
    log: Path, server_url: str, who: str
) -> None:
    environment = {"MIN_IDLE_TIME_MS": "2000"}
    async with WorkerProgram(server_url, log, environment=environment) as old:
        await everyday_app.heavy.enqueue(key="k", number=0, seconds=60)
        await everyday_app.heavy.enqueue(key="k", number=1)
        await eventually(lambda: has_lines(log, 1, "start"))
        [first] = lines(log)
        [worker] = old.children()
        assert first.pid in children_of(worker)
        async with WorkerProgram(server_url, log, environment=environment):
            if who != "supervisor":
                os.kill(worker, signal.SIGKILL)
            if who != "worker":
                old.process.kill()
            await eventually(lambda: has_lines(log, 2, "start"))
            await eventually(lambda: has_lines(log, 2, "end"), within=40)

    assert lines(log, "overlap") == []
    assert [line.number for line in lines(log, "end")] == [0, 1]
    assert first.pid not in {line.pid for line in lines(log, "end")}


async def test_exit_code_0_in_the_middle_of_a_job_is_logged_as_a_crash(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log) as program:
        job = await everyday_app.leave.enqueue(number=0, code=0)
        await eventually(lambda: _has_state(job, "failed"), within=60)

    assert "crashed: it ended with code 0 while it ran 1 job" in program.text()


async def _has_state(job: qbull.Job[Any], state: str) -> bool:
    return await job.state() == state
