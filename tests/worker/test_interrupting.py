"""Tasks that do not take an interruption as they should: it costs nobody a job, a slot, or the next interruption."""

from __future__ import annotations

import asyncio

import pytest

import qbull
from conftest import eventually


def sulky(queue: qbull.Queue) -> qbull.Task[[], None]:
    """A task that raises something else when it is interrupted."""

    @queue.task(timeout=60)
    async def sulk() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("no connection to say goodbye on")

    return sulk


async def _is(job: qbull.Job[object], state: str) -> bool:
    return await job.state() == state


async def test_a_job_that_raises_when_its_worker_ends_is_given_back(app: qbull.App) -> None:
    job = await sulky(app.queue("work", retry=qbull.Retry(attempts=1))).enqueue()
    worker = app.worker()
    await worker.start()
    await eventually(lambda: _is(job, "active"))

    await worker.stop(grace=0)

    assert await job.state() == "waiting"
    info = await job.info()
    assert info is not None and info.attempt == 1


async def test_after_a_job_that_raises_when_it_is_interrupted_the_next_one_is_interrupted_too(
    app: qbull.App,
) -> None:
    queue = app.queue("work", concurrency=1, retry=qbull.Retry(attempts=1))
    sulk = sulky(queue)

    @queue.task
    async def hang() -> None:
        await asyncio.sleep(3600)

    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="no connection to say goodbye on"):
            await (await sulk.options(timeout=0.05).enqueue()).result(timeout=20)
        with pytest.raises(qbull.JobFailed, match="longer than its timeout"):
            await (await hang.options(timeout=0.05).enqueue()).result(timeout=20)

        job = await sulk.enqueue()
        await eventually(lambda: _is(job, "active"))
        await job.cancel()
        await eventually(lambda: _is(job, "cancelled"))
        job = await hang.enqueue()
        await eventually(lambda: _is(job, "active"))
        await job.cancel()
        await eventually(lambda: _is(job, "cancelled"))


async def test_a_slot_that_is_cancelled_after_its_job_has_ended_is_opened_again(app: qbull.App) -> None:
    slots: list[asyncio.Task[None] | None] = []

    @app.queue("work", concurrency=1).task
    async def step() -> None:
        slots.append(asyncio.current_task())

    async with app.worker():
        for _ in range(3):
            await (await step.enqueue()).result(timeout=20)
            assert slots[-1] is not None
            slots[-1].cancel()

    assert len(set(slots)) == 3


async def test_a_slot_that_was_cancelled_is_not_taken_for_one_that_waits(app: qbull.App) -> None:
    app.queue("work", concurrency=2).task(name="step")(lambda: None)

    async with app.worker() as worker:
        runner = worker._runners[0]._slots
        await eventually(lambda: _free(worker, 2))
        first = next(slot for slot in runner._slots if slot.task is not None and slot.number == 0)
        assert first.task is not None
        first.task.cancel()
        runner._wake()
        woken = runner._woken
        await eventually(lambda: _free(worker, 2))

    assert woken == 1


async def test_what_a_slot_holds_when_it_is_cancelled_is_run_all_the_same(app: qbull.App) -> None:
    @app.queue("work", concurrency=1).task
    async def step() -> None: ...

    async with app.worker() as worker:
        (slot,), isolation = worker._runners[0]._slots._slots, worker._runners[0]._attempts._isolation
        async with isolation.alone():
            job = await step.enqueue()
            await eventually(lambda: _free(worker, 0))
            assert slot.task is not None
            slot.task.cancel()
        await job.result(timeout=20)


async def _free(worker: object, many: int) -> bool:
    runner = worker._runners[0]._slots  # type: ignore[attr-defined]
    return len(runner._idle) == many and not runner._woken
