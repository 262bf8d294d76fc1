"""The stack of a running job: a coroutine, a thread, a process, a blocked loop, and nobody who answers."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from stack_tasks import spin_in_process

import qbull
from conftest import eventually
from qbull.job import Job
from qbull.manage.stack import read_stack
from qbull.worker.stack_report import StackReporter


async def runs(job: Job[object]) -> None:
    async def look() -> bool:
        return await job.state() == "active"

    await eventually(look)


async def test_a_coroutine_shows_what_it_waits_for(app: qbull.App) -> None:
    queue, go = app.queue("reports"), asyncio.Event()

    async def deep_inside() -> None:
        await go.wait()

    @queue.task
    async def render() -> None:
        await asyncio.create_task(deep_inside())

    job = await render.enqueue()
    async with app.worker():
        await runs(job)
        report = await read_stack(queue, job.id)
        go.set()
        await job.result(timeout=10)

    assert report.kind == "coroutine"
    assert "await asyncio.create_task(deep_inside())" in report.stack
    assert "await go.wait()" in report.stack
    assert report.stack.index("in render") < report.stack.index("in deep_inside")
    assert "qbull/worker" not in report.stack


async def test_a_plain_function_shows_its_own_thread(app: qbull.App) -> None:
    queue, go = app.queue("reports", concurrency=2), threading.Event()

    @queue.task
    def render(page: int) -> None:
        wait_for(page)

    def wait_for(page: int) -> None:
        if page == 1:
            go.wait(30)
        else:
            go.wait(29)

    one, two = [await render.enqueue(page) for page in (1, 2)]
    async with app.worker():
        await runs(one)
        await runs(two)
        reports = [await read_stack(queue, job.id) for job in (one, two)]
        go.set()
        await one.result(timeout=10)

    assert [report.kind for report in reports] == ["thread", "thread"]
    assert all("in wait_for" in report.stack for report in reports)
    assert ["go.wait(30)" in report.stack for report in reports] == [True, False]
    assert "in render" in reports[0].stack
    assert "qbull/worker" not in reports[0].stack


async def test_a_process_shows_its_stack_although_it_never_waits(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its process imports the task from the current directory.
    monkeypatch.chdir(Path(__file__).parent)
    queue = app.queue("reports", retry=qbull.Retry(attempts=1))
    spin = queue.task(cpu=True)(spin_in_process)
    job = await spin.enqueue(60)
    async with app.worker():
        await runs(job)

        async def look() -> str:
            found = await read_stack(queue, job.id)
            return found.stack if found.kind == "process" and "in grind" in found.stack else ""

        stack = await eventually(look)
        await job.cancel()

    assert stack.index("in spin_in_process") < stack.index("in grind")
    assert "while time.monotonic() < until" in stack or "sum(range(1000))" in stack


async def test_a_task_that_blocks_the_event_loop_is_seen_all_the_same(
    app: qbull.App, server_url: str
) -> None:
    queue, go = app.queue("reports"), threading.Event()

    @queue.task
    async def block() -> None:
        while not go.is_set():
            time.sleep(0.01)

    job = await block.enqueue()
    found: list[str] = []

    def ask() -> None:
        async def main() -> None:
            async with qbull.App(server_url, prefix="test") as other:
                there = other.queue("reports")
                await runs(there.job(job.id))
                found.append((await read_stack(there, job.id, timeout=20)).stack)

        try:
            asyncio.run(main())
        finally:
            go.set()

    asking = threading.Thread(target=ask)
    asking.start()
    async with app.worker():
        await job.result(timeout=30)
    asking.join()

    assert "time.sleep(0.01)" in found[0] or "while not go.is_set()" in found[0]


async def test_only_a_running_job_has_a_stack(app: qbull.App) -> None:
    queue = app.queue("reports")

    @queue.task
    async def render() -> None: ...

    job = await render.enqueue()
    with pytest.raises(qbull.Conflict, match="is waiting, and only a running job has a stack"):
        await read_stack(queue, job.id)
    with pytest.raises(qbull.NotFound):
        await read_stack(queue, "unknown")


async def test_a_worker_that_does_not_answer_is_named(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, go = app.queue("reports"), asyncio.Event()

    @queue.task
    async def render() -> None:
        await go.wait()

    # As a worker that was started before it knew the question.
    monkeypatch.setattr(StackReporter, "on_wake_up", lambda self, base: None)
    job = await render.enqueue()
    async with app.worker():
        await runs(job)
        with pytest.raises(qbull.ResultTimeout, match=r"worker \S+ has not answered within 0.3 s"):
            await read_stack(queue, job.id, timeout=0.3)
        go.set()
        await job.result(timeout=10)
