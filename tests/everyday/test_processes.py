"""Processes of `cpu=True` tasks end with their worker, and a job that ends its process is logged as a crash."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import everyday_app
import pytest
from program import WorkerProgram, children_of, has_lines, lines

import qbull
from conftest import eventually


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["kill worker", "kill supervisor", "kill both", "crash", "second ctrl-c"])
async def test_a_cpu_process_ends_with_its_worker_before_others_get_its_job(
    log: Path, server_url: str, how: str
) -> None:
    environment = {"MIN_IDLE_TIME_MS": "2000"}
    async with WorkerProgram(server_url, log, environment=environment) as old:
        await everyday_app.heavy.enqueue(key="k", number=0, seconds=60)
        await everyday_app.heavy.enqueue(key="k", number=1)
        await eventually(lambda: has_lines(log, 1, "start"), within=60)
        [first] = lines(log)
        [worker] = old.children()
        assert first.pid in children_of(worker)
        async with WorkerProgram(server_url, log, environment=environment):
            await end(old, worker, how)
            await eventually(lambda: has_lines(log, 2, "end"), within=120)

    assert lines(log, "overlap") == []
    assert [line.number for line in lines(log, "end")] == [0, 1]
    assert first.pid not in {line.pid for line in lines(log, "end")}


async def end(program: WorkerProgram, worker: int, how: str) -> None:
    """End the worker process, its supervisor, or both."""
    if how == "crash":
        os.kill(worker, signal.SIGSEGV)
    if how in ("kill worker", "kill both"):
        os.kill(worker, signal.SIGKILL)
    if how in ("kill supervisor", "kill both"):
        program.process.kill()
    if how == "second ctrl-c":
        program.process.send_signal(signal.SIGINT)
        await eventually(lambda: says(program, "stopping"), within=60)
        program.process.send_signal(signal.SIGINT)


async def says(program: WorkerProgram, text: str) -> bool:
    return text in program.text()


@pytest.mark.timeout(240)
async def test_a_cpu_process_never_starts_a_job_after_its_workers_death(log: Path, server_url: str) -> None:
    environment = {"MIN_IDLE_TIME_MS": "2000"}
    async with WorkerProgram(server_url, log, environment=environment) as old:
        await (await everyday_app.heavy.enqueue(key="k", number=0)).result(timeout=60)
        [idle] = {line.pid for line in lines(log)}
        [worker] = old.children()
        os.kill(idle, signal.SIGSTOP)
        job = await everyday_app.heavy.enqueue(key="k", number=1)
        await eventually(lambda: _has_state(job, "active"), within=60)

        # The request has reached the process, or is on its way.
        old.process.kill()
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: _is_dead(worker), within=60)
        with suppress(ProcessLookupError):
            os.kill(idle, signal.SIGCONT)
        async with WorkerProgram(server_url, log, environment=environment):
            await job.result(timeout=120)

    assert [(line.number, line.pid == idle) for line in lines(log, "start")] == [(0, True), (1, False)]


async def test_exit_code_0_in_the_middle_of_a_job_is_logged_as_a_crash(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log) as program:
        job = await everyday_app.leave.enqueue(number=0, code=0)
        await eventually(lambda: _has_state(job, "failed"), within=60)

    assert "crashed: it ended with code 0 while it ran 1 job" in program.text()


async def _is_dead(pid: int) -> bool:
    """Whether a process has ended: one that is killed takes a moment."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


async def _has_state(job: qbull.Job[Any], state: str) -> bool:
    return await job.state() == state
