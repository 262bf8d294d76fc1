"""Jobs that end their process stop no others: suspects run in the quarantine process, all other jobs go on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

import qbull
from conftest import eventually


@pytest.mark.timeout(240)
async def test_four_crashing_jobs_hold_up_none_of_170_harmless_ones(log: Path, server_url: str) -> None:
    before = time.monotonic()
    async with WorkerProgram(server_url, log) as program:
        # A busy machine starts processes slowly: the limit of 5 s is for one that does so in a quarter of a second.
        process_start = (time.monotonic() - before) / 2
        crashing = []
        for number in range(174):
            if number % 45 == 20:
                crashing.append(await everyday_app.leave.enqueue(number=number))
            else:
                await everyday_app.quick.enqueue(number=number)
        enqueued = time.time()
        harmless = await eventually(lambda: all_started(log, 170), within=120)
        await eventually(lambda: has_failed(crashing), within=120)
        await eventually(nothing_left, within=60)

    assert max(harmless.values()) - enqueued < max(5, 20 * process_start)
    assert (await everyday_app.free.stats()).totals["completed"] == 170
    assert [line.number for line in lines(log, "start", "leave") if line.attempt != 1] == []
    assert len(lines(log, "start", "leave")) == 4 * 3, "three crashes make a dead letter"
    assert "worker processes die" not in program.text()


@pytest.mark.timeout(120)
async def test_a_job_whose_worker_crashed_runs_in_a_process_of_its_own_kind(
    log: Path, server_url: str
) -> None:
    async with WorkerProgram(server_url, log) as program:
        [worker] = program.children()
        poison = await everyday_app.leave.enqueue(number=0)
        await eventually(lambda: has_failed([poison]), within=60)
        # The worker that replaced the first one goes on while the quarantine process dies twice.
        await (await everyday_app.quick.enqueue(number=1)).result(timeout=30)

    first, *others = [line.pid for line in lines(log, "start", "leave")]
    [quick] = [line.pid for line in lines(log, "start", "quick")]
    assert first == worker
    assert len({first, *others, quick}) == 4
    assert program.text().count("quarantine worker") == 2, program.text()
    info = await poison.info()
    assert info is not None and info.error == "its worker died 3 times while it ran"


@pytest.mark.timeout(180)
async def test_a_spare_process_takes_over_at_the_next_crash(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log) as program:
        first = await everyday_app.leave.enqueue(number=0)
        await eventually(lambda: has_failed([first]), within=90)
        # The worker, and spare processes that wait for a role.
        await (await everyday_app.quick.enqueue(number=1)).result(timeout=60)
        waiting = set(await eventually(lambda: has_children(program, 3), within=60))
        waiting -= {line.pid for line in lines(log, "start")}
        await everyday_app.leave.enqueue(number=2)
        await eventually(lambda: has_lines(log, 4, "start", "leave"), within=60)
        await (await everyday_app.quick.enqueue(number=3)).result(timeout=60)
        [later] = [line for line in lines(log, "start", "quick") if line.number == 3]

    assert later.pid in waiting
    assert program.children() == []


@pytest.mark.timeout(120)
async def test_a_long_job_is_not_interrupted_by_a_suspect(log: Path, server_url: str) -> None:
    """A suspect used to wait until its worker ran nothing else, and nothing else started meanwhile."""
    async with WorkerProgram(server_url, log, ("--processes", "1")):
        poison = await everyday_app.leave.enqueue(number=0)
        await eventually(lambda: has_lines(log, 1, "start", "leave"))
        await everyday_app.plain.enqueue(key="long", number=0, seconds=3600)
        await eventually(lambda: has_failed([poison]), within=60)
        await eventually(lambda: has_lines(log, 1, "start", "long"))
        await (await everyday_app.quick.enqueue(number=1)).result(timeout=30)
        [long] = lines(log, "start", "long")[-1:]
        os.kill(long.pid, signal.SIGKILL)


@pytest.mark.timeout(120)
async def test_a_key_stays_in_order_behind_a_suspect(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, ("--processes", "2")):
        jobs = [await everyday_app.fragile.enqueue(key="k", number=number) for number in range(6)]
        for job in jobs:
            await job.result(timeout=60)

    ends = [line.number for line in lines(log, "end", "k")]
    assert ends == list(range(6))
    assert lines(log, "overlap") == []


async def has_failed(jobs: list[qbull.Job[None]]) -> bool:
    return {await job.state() for job in jobs} == {"failed"}


async def has_children(program: WorkerProgram, many: int) -> list[int] | None:
    children = program.children()
    return children if len(children) >= many else None


async def all_started(log: Path, count: int) -> dict[int, float] | None:
    """When each harmless job started for the first time, once all have."""
    first = {line.number: line.at for line in reversed(lines(log, "start", "quick"))}
    return first if len(first) == count else None


async def nothing_left() -> bool:
    return (await everyday_app.free.stats()).unfinished == 0
