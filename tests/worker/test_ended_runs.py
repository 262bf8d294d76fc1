"""Runs of durable jobs that are over: nothing keeps them in memory, and they take no further calls."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

import qbull
from conftest import eventually
from qbull.worker.current import RunningJob, running
from qbull.worker.durable import DurableRun
from qbull.worker.run_is_over import RUN_IS_OVER


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Only what nothing refers to goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def add_one(number: int) -> int:
    return number + 1


async def test_a_run_that_is_over_leaves_nothing_to_the_garbage_collector(
    app: qbull.App, without_collector: None
) -> None:
    runs: list[weakref.ref[DurableRun]] = []

    @app.queue("orders").task(durable=True)
    async def count() -> int:
        job = running.get()
        assert job is not None and isinstance(job.durable, DurableRun)
        runs.append(weakref.ref(job.durable))
        return await qbull.current_job().step(add_one, 1)

    async with app.worker():
        assert await (await count.enqueue()).result(timeout=20) == 2
        # The slot forgets its last job when it has the next one.
        assert await (await count.enqueue()).result(timeout=20) == 2

    assert len(runs) == 2
    assert runs[0]() is None


@pytest.mark.parametrize("name", ["step", "sleep", "emit"])
async def test_a_call_after_the_end_is_refused(app: qbull.App, name: str) -> None:
    kept: list[qbull.CurrentJob] = []

    @app.queue("orders").task(durable=True)
    async def leave_early() -> None:
        kept.append(qbull.current_job())

    async with app.worker():
        await (await leave_early.enqueue()).result(timeout=20)
        job = kept[0]
        calls = {
            "step": lambda: job.step(add_one, 1),
            "sleep": lambda: job.sleep(1),
            "emit": lambda: job.emit(1),
        }
        with pytest.raises(qbull.QbullError, match=rf"{name}\(\): its job has ended; await all steps"):
            await calls[name]()


async def test_a_step_in_a_thread_does_not_fail_because_its_run_ends_while_it_emits(app: qbull.App) -> None:
    jobs, calls, may_go_on = list[RunningJob](), list[str](), threading.Event()

    class Answer:
        def model_dump(self, mode: str) -> str:
            may_go_on.wait(60)
            return "late"

    def ask() -> str:
        calls.append("ask")
        qbull.current_job().emit_sync(Answer())
        return "asked"

    five_times = qbull.Retry(attempts=5, delay=0)

    @app.queue("orders", order="key").task(key="{key}", durable=True, timeout=0.2, retry=five_times)
    def hang_once(key: str) -> str:
        job = running.get()
        assert job is not None
        jobs.append(job)
        return qbull.current_job().step_sync(ask)

    async def is_over() -> bool:
        return bool(jobs) and jobs[0].durable is RUN_IS_OVER

    try:
        async with app.worker():
            job = await hang_once.enqueue(key="a")
            await eventually(is_over)
            may_go_on.set()
            assert await job.result(timeout=30) == "asked"
    finally:
        may_go_on.set()

    assert calls == ["ask"]
