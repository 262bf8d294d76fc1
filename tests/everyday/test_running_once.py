"""One job never runs twice at the same time in one process, also if the other workers take the process for dead."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

import qbull
from conftest import eventually
from qbull.store.names import Names
from qbull.store.store import Store


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["coroutine", "plain", "cpu"])
async def test_a_job_is_not_started_again_beside_its_earlier_run_if_the_supervisor_is_frozen(
    log: Path, store: Store, server_url: str, kind: str
) -> None:
    environment = {"MIN_IDLE_TIME_MS": "1500", "EVERYDAY_GATE": str(log.with_suffix(".gate"))}
    async with (
        WorkerProgram(server_url, log, ("--queues", "work"), environment) as frozen,
        WorkerProgram(server_url, log, ("--queues", "free"), environment) as other,
    ):
        gated = {
            "coroutine": everyday_app.gated,
            "plain": everyday_app.gated_plain,
            "cpu": everyday_app.gated_cpu,
        }[kind]
        await gated.enqueue(key="k", number=0)
        await gated.enqueue(key="k", number=1)
        await eventually(lambda: has_lines(log, 1, "start"), within=30)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            # The other worker serves another queue: it reclaims the job, and the same process gets it again.
            await eventually(lambda: _has_said(other, "deliveries were reclaimed"), within=30)
            await eventually(lambda: _is_delivered_again(store), within=30)
            # A job of another key shows that this process starts what it is given.
            await (everyday_app.heavy if kind == "cpu" else everyday_app.plain).enqueue(key="other", number=0)
            await eventually(lambda: has_lines(log, 1, "end", "other"), within=30)
            beside = lines(log, "start", "k")
            log.with_suffix(".gate").touch()
            await eventually(lambda: has_lines(log, 1, "end", "k"), within=30)
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        await eventually(lambda: _ran(log, 1), within=30)

    assert len(beside) == 1
    assert [line.word for line in lines(log, key="k")] == ["start", "end"] * (len(lines(log, key="k")) // 2)
    numbers = [line.number for line in lines(log, "end", "k")]
    assert numbers == sorted(numbers)
    assert set(numbers) == {0, 1}


async def test_a_plain_function_that_outlives_its_timeout_does_not_run_beside_its_retry(
    app: qbull.App,
) -> None:
    go, now, most = threading.Event(), 0, 0
    queue = app.queue("reports", retry=qbull.Retry(attempts=2, backoff="fixed", delay=0.01))

    @queue.task(timeout=0.2)
    def hang() -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if qbull.current_job().attempt == 1:
            go.wait(30)
        now -= 1
        return "done"

    @queue.task
    async def other() -> str:
        return "ran"

    job = await hang.enqueue()
    async with app.worker():
        # Meanwhile the retry is delivered, put off and delivered again.
        await eventually(lambda: _has_attempt(job, 2))
        await eventually(lambda: _is_put_off(job))
        assert await (await other.enqueue()).result(timeout=10) == "ran"
        go.set()
        assert await job.result(timeout=20) == "done"

    assert most == 1


async def _is_delivered_again(store: Store) -> bool:
    base = Names("test").partition("work", 0)
    for level in ("0", "5"):
        reply = await store.server.call("XPENDING", f"{base}ready:{level}", "workers", "-", "+", 10)
        if any(int(entry[0].split(b"-")[0]) for entry in reply) and level == "0":
            return True
    return False


async def _is_put_off(job: qbull.Job[str]) -> bool:
    """Its delay is longer than the backoff of its retry."""
    info = await job.info()
    if info is None or info.due_at is None:
        return False
    return info.due_at > info.history[-1].at + timedelta(seconds=1)


async def _has_attempt(job: qbull.Job[str], attempt: int) -> bool:
    info = await job.info()
    return info is not None and info.attempt >= attempt


async def _ran(log: Path, number: int) -> bool:
    return number in [line.number for line in lines(log, "end", "k")]


async def _has_said(program: WorkerProgram, text: str) -> bool:
    return text in program.text()
