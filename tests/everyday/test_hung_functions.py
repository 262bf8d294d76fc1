"""Plain functions that hang past their timeout: capacity comes back, and nobody overlaps with what may still have an effect."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import everyday_app
import pytest
from program import WorkerProgram, has_lines, lines

import qbull
from conftest import eventually


@pytest.mark.timeout(180)
async def test_five_hung_functions_do_not_stop_a_worker_with_five_slots(log: Path, server_url: str) -> None:
    before = time.monotonic()
    async with WorkerProgram(server_url, log, environment={"EVERYDAY_CONCURRENCY": "5"}) as program:
        start_time = time.monotonic() - before
        [first] = program.children()
        hung = [await everyday_app.hang.enqueue(number=number) for number in range(5)]
        await eventually(lambda: has_lines(log, 5, "start", "hang"), within=60)
        timed_out = max(line.at for line in lines(log, "start", "hang")) + 1
        await everyday_app.quick.enqueue(number=0)
        await eventually(lambda: has_lines(log, 1, "start", "quick"), within=60)
        for job in hung:
            with pytest.raises(qbull.JobFailed, match="it ran longer than its timeout of 1 s"):
                await job.result(timeout=60)
        # The process of the hung threads ends, and its successor runs jobs.
        await eventually(lambda: has_only_others(program, first), within=60)
        await (await everyday_app.quick.enqueue(number=1)).result(timeout=60)

    [quick, later] = lines(log, "start", "quick")
    assert quick.at - timed_out < max(5, 2 * start_time)
    assert later.pid != first
    assert len(lines(log, "start", "hang")) == 5
    assert "crashed" not in program.text()


@pytest.mark.timeout(180)
async def test_a_key_waits_until_the_process_of_a_hung_function_is_gone(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, ("--processes", "2")):
        hung = await everyday_app.hang_once.enqueue(key="k", number=0)
        behind = await everyday_app.plain.enqueue(key="k", number=1)
        await behind.result(timeout=120)
        info = await hung.info()

    assert lines(log, "overlap") == []
    assert [(line.number, line.attempt) for line in lines(log, "start", "k")] == [(0, 1), (0, 2), (1, 1)]
    assert [line.number for line in lines(log, "end", "k")] == [0, 1]
    assert info is not None and info.state == "completed"
    assert [attempt.error for attempt in info.history] == ["it ran longer than its timeout of 1 s"]


@pytest.mark.timeout(180)
async def test_jobs_beside_a_hung_function_end_in_their_process(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log) as program:
        [first] = program.children()
        beside = await everyday_app.plain.enqueue(key="beside", number=0, seconds=8)
        await eventually(lambda: has_lines(log, 1, "start", "beside"))
        await everyday_app.hang.enqueue(number=0)
        await beside.result(timeout=60)
        await eventually(lambda: has_only_others(program, first), within=60)

    assert [(line.word, line.attempt, line.pid) for line in lines(log, key="beside")] == [
        ("start", 1, first),
        ("end", 1, first),
    ]


@pytest.mark.timeout(120)
async def test_a_function_that_returns_a_little_late_costs_no_process(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log) as program:
        [first] = program.children()
        late = await everyday_app.hang_once.enqueue(key="k", number=0, seconds=1.3)
        await (await everyday_app.plain.enqueue(key="k", number=1)).result(timeout=60)
        assert program.children() == [first]

    assert [(line.word, line.number, line.attempt) for line in lines(log, key="k")] == [
        ("start", 0, 1),
        ("end", 0, 1),
        ("start", 0, 2),
        ("end", 0, 2),
        ("start", 1, 1),
        ("end", 1, 1),
    ]
    assert await late.state() == "completed"


@pytest.mark.timeout(120)
async def test_a_stopping_worker_records_the_timeout_of_a_hung_function(log: Path, server_url: str) -> None:
    async with WorkerProgram(server_url, log, ("--grace", "0.1")) as program:
        job = await everyday_app.hang_once.enqueue(key="k", number=0)
        await eventually(lambda: has_lines(log, 1, "start"), within=60)
        await asyncio.sleep(1.2)
        program.process.terminate()
        await program.ended()

    info = await job.info()
    assert info is not None and info.attempt == 2
    assert [attempt.error for attempt in info.history] == ["it ran longer than its timeout of 1 s"]


async def test_a_worker_inside_a_program_gives_the_slots_of_hung_functions_fresh_threads(
    app: qbull.App,
) -> None:
    queue, may_end = app.queue("work", concurrency=2), threading.Event()

    @queue.task(timeout=0.2, retry=qbull.Retry(attempts=1))
    def hang() -> None:
        may_end.wait(60)

    @queue.task
    def quick() -> str:
        return "went"

    try:
        async with app.worker():
            hung = [await hang.enqueue() for _ in range(2)]
            for job in hung:
                with pytest.raises(qbull.JobFailed, match="timeout"):
                    await job.result(timeout=30)
            assert [await (await quick.enqueue()).result(timeout=30) for _ in range(4)] == ["went"] * 4
    finally:
        may_end.set()


async def test_a_key_waits_for_a_hung_function_in_a_program(app: qbull.App) -> None:
    queue, may_end, seen = app.queue("work", order="key", concurrency=2), threading.Event(), list[str]()

    @queue.task(key="{key}", timeout=0.2, retry=qbull.Retry(attempts=1))
    def hang(key: str) -> None:
        may_end.wait(60)
        seen.append("hung function ended")

    @queue.task(key="{key}")
    def quick(key: str) -> None:
        seen.append(f"quick {key}")

    try:
        async with app.worker():
            hung = await hang.enqueue(key="a")
            behind = await quick.enqueue(key="a")
            await (await quick.enqueue(key="b")).result(timeout=30)
            await asyncio.sleep(0.5)
            assert (await hung.state(), await behind.state()) == ("active", "waiting")
            may_end.set()
            await behind.result(timeout=30)
            assert await hung.state() == "failed"
    finally:
        may_end.set()

    assert seen == ["quick b", "hung function ended", "quick a"]


async def has_only_others(program: WorkerProgram, pid: int) -> bool:
    children: Any = program.children()
    return bool(children) and pid not in children
