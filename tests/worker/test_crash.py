"""Workers die: by SIGKILL, by their own jobs, by being stopped for too long. No job is lost, none out of order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import logging_app
import pytest
from worker_processes import WorkerProcesses, every, order_faults, runs

import qbull
from conftest import eventually
from qbull.store.store import Store


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(logging_app.app, "url", server_url)
    yield tmp_path / "log"
    await logging_app.app.close()


@pytest.mark.timeout(180)
async def test_every_key_stays_in_order_while_workers_are_killed(log: Path, server_url: str) -> None:
    keys, each = 200, 100
    luck = random.Random(7)
    calls = [
        {
            "key": f"k{key}",
            "number": number,
            "failures": luck.choice((1, 2)) if luck.random() < 0.2 else 0,
            "seconds": 0.01,
        }
        for number in range(each)
        for key in range(keys)
    ]

    async with WorkerProcesses(server_url, log, processes=4) as fleet:
        killer = every(1.0, lambda: fleet.children() and fleet.kill_one(luck.randrange(4)))
        await logging_app.step.enqueue_many(calls)
        await eventually(_nothing_left, within=120)
        killer.cancel()

    ends = [run for run in runs(log) if run.word == "end"]
    stats = await logging_app.work.stats()
    assert stats.failed == 0
    assert 10_000 <= stats.completed < 10_016  # as many as are kept
    assert stats.totals["completed"] == keys * each
    assert len({(run.key, run.number) for run in ends}) == keys * each
    assert order_faults(ends) == []
    assert "signal 9" in fleet.said()


async def test_the_jobs_of_a_killed_process_start_again_at_once(log: Path, server_url: str) -> None:
    async with WorkerProcesses(server_url, log, processes=2) as fleet:
        for number in range(4):
            await logging_app.step.enqueue(key=f"k{number}", number=0, seconds=30)
        await eventually(lambda: _begun(log, 4))
        victim = runs(log)[0].pid
        held = sum(run.pid == victim for run in runs(log))
        os.kill(victim, signal.SIGKILL)
        killed = asyncio.get_running_loop().time()
        await eventually(lambda: _begun(log, 4 + held))
        within = asyncio.get_running_loop().time() - killed
        fleet.process.kill()
        for pid in fleet.children():
            os.kill(pid, signal.SIGKILL)

    again = runs(log)[4:]
    assert len(again) == held
    assert all(run.pid != victim for run in again)
    assert within < 5, "this is seconds below the time after which a silent worker counts as dead"


async def test_a_job_that_blocks_the_loop_is_not_run_twice(log: Path, server_url: str) -> None:
    async with WorkerProcesses(server_url, log, processes=2, environment={"MIN_IDLE_TIME_MS": "500"}):
        job = await logging_app.block.enqueue(key="b", seconds=4)
        await job.result(timeout=30)

    assert [run.word for run in runs(log)] == ["begin", "end"]


async def test_a_worker_that_was_stopped_for_too_long_cannot_settle(log: Path, server_url: str) -> None:
    patient = {"MIN_IDLE_TIME_MS": "1000"}
    async with WorkerProcesses(server_url, log, environment=patient) as zombie:
        job = await logging_app.step.enqueue(key="a", number=0, seconds=3)
        await eventually(lambda: _begun(log, 1))
        stopped = [zombie.process.pid, *zombie.children()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

        async with WorkerProcesses(server_url, log, environment=patient, output=log.with_suffix(".other")):
            await job.result(timeout=30)
            info = await job.info()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            await eventually(lambda: _said(zombie, "the outcome of this run was refused"))

        assert info == await job.info()
        assert info is not None and info.crashes == 1


@pytest.mark.timeout(120)
async def test_a_poison_job_is_given_up_after_three_crashes_and_takes_nobody_with_it(
    log: Path, server_url: str
) -> None:
    async with WorkerProcesses(server_url, log, processes=2):
        poison = await logging_app.die.enqueue(key="poison")
        others = [await logging_app.step.enqueue(key=f"k{n}", number=0, seconds=0.2) for n in range(30)]
        for job in others:
            await job.result(timeout=60)
        info = await eventually(lambda: _failed(poison))

    begun = [run for run in runs(log) if run.key == "poison"]
    assert len(begun) == 3
    assert info.error == "its worker died 3 times while it ran"
    assert (await logging_app.work.stats()).failed == 1


async def test_the_last_worker_of_a_dead_machine_is_taken_over_by_others(log: Path, server_url: str) -> None:
    short = {"MIN_IDLE_TIME_MS": "1000"}
    async with WorkerProcesses(server_url, log, environment=short) as gone:
        job = await logging_app.step.enqueue(key="a", number=0, seconds=3)
        await eventually(lambda: _begun(log, 1))
        for pid in [gone.process.pid, *gone.children()]:
            os.kill(pid, signal.SIGKILL)

        async with WorkerProcesses(server_url, log, environment=short, output=log.with_suffix(".other")):
            await job.result(timeout=30)

    assert [run.word for run in runs(log)] == ["begin", "begin", "end"]


async def test_children_do_not_outlive_their_parent(log: Path, server_url: str) -> None:
    async with WorkerProcesses(
        server_url, log, processes=2, environment={"MIN_IDLE_TIME_MS": "1000"}
    ) as fleet:
        children = fleet.children()
        await logging_app.block.enqueue(key="b", seconds=20)
        await eventually(lambda: _begun(log, 1))

        fleet.process.kill()

        await eventually(lambda: _gone(children), within=10)


async def _nothing_left() -> bool:
    return (await logging_app.work.stats()).unfinished == 0


async def _begun(log: Path, many: int) -> bool:
    return sum(run.word == "begin" for run in runs(log)) >= many


async def _said(fleet: WorkerProcesses, text: str) -> bool:
    return text in fleet.said()


async def _failed(job: object) -> object:
    info = await job.info()  # type: ignore[attr-defined]
    return info if info is not None and info.state == "failed" else None


async def _gone(pids: list[int]) -> bool:
    return not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


async def test_the_chunks_of_a_killed_worker_are_done_once_more_and_each_job_ends_once(
    log: Path, server_url: str
) -> None:
    async with WorkerProcesses(
        server_url, log, processes=2, environment={"LOGGING_APP_PACKING": "0.5"}
    ) as fleet:
        jobs = await logging_app.pack.enqueue_many([{"item": number} for number in range(40)])
        await eventually(lambda: _begun(log, 20))
        victim = runs(log)[0].pid
        os.kill(victim, signal.SIGKILL)
        results = [await job.result(timeout=60) for job in jobs]

    again = [run for run in runs(log) if run.pid == victim]
    stats = await logging_app.parcels.stats()
    assert results == list(range(40)) and again
    assert (stats.totals["completed"], stats.failed, stats.unfinished) == (40, 0, 0)
    assert all(run.attempt == 1 for run in runs(log))  # a crash of the worker is no attempt of the job
    assert fleet.said().count("signal 9") == 1


async def test_a_job_that_kills_its_chunk_takes_the_others_with_it_twice_at_most(
    log: Path, server_url: str
) -> None:
    async with WorkerProcesses(server_url, log):
        jobs = await logging_app.pack.enqueue_many([{"item": number} for number in (1, 2, -1, 3, 4)])
        with pytest.raises(qbull.JobFailed, match="its worker died 3 times while it ran"):
            await jobs[2].result(timeout=60)
        results = [await job.result(timeout=60) for job in (*jobs[:2], *jobs[3:])]

    seen = Counter(run.number for run in runs(log))
    last = [run for run in runs(log) if run.number < 0][-1]
    assert results == [1, 2, 3, 4]
    assert seen[-1] == 3 and max(seen.values()) == 3  # twice with others, then by itself
    assert last.key == "1"  # so many were in its chunk
