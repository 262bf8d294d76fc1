"""Threads and processes: plain functions run in threads, and with cpu=True in processes of their own."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store


async def test_a_plain_function_runs_in_a_thread(app: qbull.App) -> None:
    @app.queue("reports").task
    def render() -> str:
        return threading.current_thread().name

    job = await render.enqueue()
    async with app.worker():
        name = await job.result(timeout=10)

    assert name.startswith("qbull-reports")
    assert name != threading.current_thread().name


async def test_a_plain_function_may_block_and_others_run_meanwhile(app: qbull.App) -> None:
    queue = app.queue("reports", concurrency=2)
    rung = threading.Event()

    @queue.task
    def wait() -> bool:
        return rung.wait(10)

    @queue.task
    async def ring() -> None:
        rung.set()

    waiting = await wait.enqueue()
    await ring.enqueue()
    async with app.worker():
        assert await waiting.result(timeout=10) is True


async def test_as_many_plain_functions_run_at_a_time_as_the_queue_allows(app: qbull.App) -> None:
    all_there = threading.Barrier(4)

    @app.queue("reports", concurrency=4).task
    def meet() -> None:
        all_there.wait(10)

    jobs = await meet.enqueue_many([{} for _ in range(4)])
    async with app.worker():
        for job in jobs:
            await job.result(timeout=10)


async def test_a_plain_function_knows_its_job(app: qbull.App) -> None:
    @app.queue("reports").task
    def who() -> str:
        return qbull.current_job().id

    job = await who.enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == job.id


async def test_what_a_plain_function_raises_is_a_failed_attempt(app: qbull.App) -> None:
    @app.queue("reports", retry=qbull.Retry(delays=(0.01,))).task
    def render() -> None:
        raise OSError("disk full")

    job = await render.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="OSError: disk full") as failed:
            await job.result(timeout=10)

    assert failed.value.stacktrace is not None
    assert 'raise OSError("disk full")' in failed.value.stacktrace


@pytest.fixture
async def numbers(store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module cpu_tasks.py, imported like a program's own module: from the current directory."""
    monkeypatch.setenv("QBULL_URL", server_url)
    monkeypatch.setenv("QBULL_PREFIX", "test")
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.syspath_prepend(".")
    sys.modules.pop("cpu_tasks", None)
    module = importlib.import_module("cpu_tasks")
    async with module.app:
        yield module


async def test_a_cpu_task_runs_in_another_process_and_returns_what_is_annotated(numbers: Any) -> None:
    job = await numbers.factorise.enqueue(360)
    elsewhere = await numbers.process_id.enqueue()
    async with numbers.app.worker():
        result = await job.result(timeout=20)
        pid = await elsewhere.result(timeout=20)

    assert result == numbers.Factors(360, (2, 2, 2, 3, 3, 5))
    assert pid != os.getpid()


async def test_processes_are_used_again_and_end_with_the_worker(numbers: Any) -> None:
    async with numbers.app.worker(concurrency=1):
        first = await (await numbers.process_id.enqueue()).result(timeout=20)
        second = await (await numbers.process_id.enqueue()).result(timeout=20)

    assert first == second
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


async def test_a_rate_is_exact_although_a_process_must_start_first(numbers: Any) -> None:
    await numbers.queue.configure(rate=qbull.Rate(4, per=1), concurrency=4)

    jobs = await numbers.begun_at.enqueue_many([{}] * 12)
    async with numbers.app.worker():
        starts = sorted([await job.result(timeout=60) for job in jobs])

    assert all(later - earlier >= 1 for earlier, later in zip(starts, starts[4:], strict=False))


async def test_what_a_cpu_task_raises_comes_back_with_its_stacktrace(numbers: Any) -> None:
    job = await numbers.refuse.enqueue(13)
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=20)

    assert failed.value.error.endswith("ValueError: 13 is not a number to work with")
    assert failed.value.stacktrace is not None
    assert "cpu_tasks.py" in failed.value.stacktrace


async def test_the_error_of_a_cpu_task_reads_like_any_other(numbers: Any) -> None:
    job = await numbers.refuse.enqueue(13)
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=20)

    assert failed.value.error == "ValueError: 13 is not a number to work with"


async def test_a_cpu_task_may_give_up_at_once(numbers: Any) -> None:
    job = await numbers.give_up.enqueue()
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=20)

    assert failed.value.error == "there is no such number"


async def test_a_timeout_ends_a_cpu_task_for_real(numbers: Any) -> None:
    job = await numbers.hang.enqueue()
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed, match="longer than its timeout"):
            await job.result(timeout=20)
        after = await (await numbers.factorise.enqueue(6)).result(timeout=20)

    assert after.factors == (2, 3)


async def test_a_cpu_task_says_how_far_it_is(numbers: Any) -> None:
    job = await numbers.talk.enqueue(50)
    async with numbers.app.worker():
        await job.result(timeout=20)

    assert (await job.info()).progress == 100
    assert [line.text for line in await job.logs()] == [f"line {n}" for n in range(50)]


async def test_cancelling_ends_a_cpu_task_for_real(numbers: Any) -> None:
    job = await numbers.hang.options(timeout=600).enqueue()
    async with numbers.app.worker():
        while await job.state() != "active":
            await asyncio.sleep(0.01)
        await job.cancel()
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=20)


@pytest.mark.parametrize(("task", "why"), [("die", "ended with code 7"), ("leave", "SystemExit: 3")])
async def test_a_process_that_ends_is_a_failed_attempt_and_no_more(numbers: Any, task: str, why: str) -> None:
    job = await getattr(numbers, task).enqueue()
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed, match=why):
            await job.result(timeout=20)
        after = await (await numbers.factorise.enqueue(6)).result(timeout=20)

    assert after.factors == (2, 3)


async def test_a_process_that_ended_while_it_was_idle_is_given_no_job(numbers: Any) -> None:
    async with numbers.app.worker(concurrency=1):
        first = await (await numbers.process_id.enqueue()).result(timeout=20)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: has_ended(first))

        second = await (await numbers.process_id.enqueue()).result(timeout=20)

    assert first != second


async def test_what_a_cpu_task_has_started_ends_with_its_process(numbers: Any, tmp_path: Path) -> None:
    path = tmp_path / "child"
    job = await numbers.leave_a_child_behind.enqueue(str(path), seconds=0)
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed, match="ended with code 7"):
            await job.result(timeout=60)

        await eventually(lambda: has_ended(int(path.read_text())))


async def test_what_a_cpu_task_has_started_ends_when_it_is_cancelled(numbers: Any, tmp_path: Path) -> None:
    path = tmp_path / "child"
    job = await numbers.leave_a_child_behind.enqueue(str(path), seconds=3600)
    async with numbers.app.worker():
        child = int(await eventually(lambda: text_of(path)))
        await job.cancel()

        await eventually(lambda: has_ended(child))


async def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def has_ended(pid: int) -> bool:
    """What nobody has waited for yet has ended too, once the last of its threads has."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return threads <= 1 and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_result_of_a_cpu_task_that_cannot_travel_says_so(numbers: Any) -> None:
    job = await numbers.opaque.enqueue()
    async with numbers.app.worker():
        with pytest.raises(qbull.JobFailed, match="its result cannot be encoded"):
            await job.result(timeout=20)


async def test_a_cpu_task_knows_its_job(numbers: Any) -> None:
    job = await numbers.own_attempt.enqueue()
    async with numbers.app.worker():
        assert await job.result(timeout=20) == 1


async def test_a_coroutine_cannot_be_a_cpu_task(app: qbull.App) -> None:
    with pytest.raises(qbull.DeclarationError, match="remove async, or cpu=True"):

        @app.queue("numbers").task(cpu=True)
        async def factorise(n: int) -> int:
            await asyncio.sleep(0)
            return n
