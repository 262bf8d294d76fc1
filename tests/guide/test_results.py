"""Results: wait for a job, or look later. What finished is kept for as long as the queue's `keep` says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

import qbull


@dataclass
class Report:
    pages: int


async def test_a_result_can_be_awaited_before_and_after_the_job_ran(app: qbull.App) -> None:
    @app.queue("reports").task
    async def render(pages: int) -> Report:
        return Report(pages)

    job = await render.enqueue(3)
    waiting = asyncio.create_task(job.result(timeout=10))
    async with app.worker():
        before = await waiting
        after = await job.result()

    assert before == after == Report(3)


async def test_many_may_wait_for_one_job(app: qbull.App) -> None:
    @app.queue("reports").task
    async def render() -> str:
        return "done"

    job = await render.enqueue()
    async with app.worker():
        results = await asyncio.gather(*(job.result(timeout=10) for _ in range(20)))

    assert results == ["done"] * 20


async def test_waiting_ends_after_the_timeout_and_the_job_goes_on(app: qbull.App) -> None:
    let_go = asyncio.Event()

    @app.queue("reports").task
    async def render() -> str:
        await let_go.wait()
        return "done"

    job = await render.enqueue()
    async with app.worker():
        with pytest.raises(qbull.ResultTimeout, match=r"has not finished within 0\.05 s"):
            await job.result(timeout=0.05)
        let_go.set()
        assert await job.result(timeout=10) == "done"


async def test_a_result_timeout_is_a_timeout_error_too(app: qbull.App) -> None:
    @app.queue("reports").task
    async def render() -> None: ...

    job = await render.enqueue()

    with pytest.raises(TimeoutError):
        await job.result(timeout=0)


async def test_the_result_of_a_failed_job_raises_its_error_and_stacktrace(app: qbull.App) -> None:
    @app.queue("reports", retry=qbull.Retry(attempts=1)).task
    async def render() -> None:
        raise KeyError("page 7")

    job = await render.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=10)

    assert failed.value.error == "KeyError: 'page 7'"
    assert failed.value.stacktrace is not None
    assert 'raise KeyError("page 7")' in failed.value.stacktrace
    assert job.id in str(failed.value)


async def test_an_unknown_job_has_no_result(app: qbull.App) -> None:
    app.queue("reports", partitions=3)

    job = app.job("reports", "never-enqueued")

    with pytest.raises(qbull.NotFound, match="no job never-enqueued"):
        await job.result(timeout=10)
    assert await job.state() is None
    assert await job.info() is None


async def test_an_unknown_queue_is_refused_and_the_known_ones_named(app: qbull.App) -> None:
    app.queue("reports")
    app.queue("email")

    with pytest.raises(
        qbull.NotFound, match='queue "report": not declared in this app; it has: email, reports'
    ):
        app.job("report", "x")


async def test_a_handle_can_be_made_from_an_id(app: qbull.App) -> None:
    queue = app.queue("reports", partitions=5)

    @queue.task
    async def render(pages: int) -> Report:
        return Report(pages)

    jobs = [await render.enqueue(n) for n in range(10)]
    async with app.worker() as worker:
        await worker.drain()

    for n, job in enumerate(jobs):
        assert await app.job("reports", job.id).state() == "completed"
        assert await app.job(queue, job.id).result(timeout=10) == {"pages": n}  # without the task: plain JSON


async def test_a_queue_that_keeps_nothing_has_no_results(app: qbull.App) -> None:
    queue = app.queue("reports", keep=qbull.Keep(completed=0))

    @queue.task
    async def render() -> str:
        return "done"

    job = await render.enqueue()
    waiting = asyncio.create_task(job.result(timeout=10))
    async with app.worker() as worker:
        await worker.drain()
        with pytest.raises(qbull.NotFound):
            await waiting

    assert await job.info() is None
    assert (await queue.stats()).total == 0
