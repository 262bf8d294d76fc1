"""Results: wait for a job, or look later. What finished is kept for as long as the queue's `keep` says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

import qbull
from qbull.store.store import Store


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


async def test_a_large_result_is_kept_in_a_directory(server_url: str, store: Store, tmp_path: Path) -> None:
    results = qbull.FileResults(tmp_path / "results", over=100)
    async with qbull.App(server_url, prefix="test", payload_limit=1000, results=results) as app:
        queue = app.queue("reports")

        @queue.task
        async def render(size: int) -> str:
            return "x" * size

        @queue.task
        def render_in_a_thread(size: int) -> str:
            return "y" * size

        large, small = await render.enqueue(50_000), await render.enqueue(10)
        other = await render_in_a_thread.enqueue(5_000)
        async with app.worker() as worker:
            assert await large.result(timeout=10) == "x" * 50_000
            assert await small.result(timeout=10) == "x" * 10
            assert await other.result(timeout=10) == "y" * 5_000
            await worker.drain()

        info, little = await large.info(), await small.info()
        assert info is not None
        assert little is not None
        assert list(info.result) == ["stored"]
        assert little.result == "x" * 10
        assert len([path for path in (tmp_path / "results").rglob("*") if path.is_file()]) == 2


async def test_whoever_has_no_place_for_large_results_is_told(
    server_url: str, app: qbull.App, tmp_path: Path
) -> None:
    results = qbull.FileResults(tmp_path, over=10)
    async with qbull.App(server_url, prefix="test", results=results) as elsewhere:

        @elsewhere.queue("reports").task
        async def render() -> str:
            return "x" * 100

        job = await render.enqueue()
        async with elsewhere.worker() as worker:
            await worker.drain()

        app.queue("reports")
        with pytest.raises(
            qbull.ConfigError, match=r"is kept elsewhere, as .*; give this app the same results="
        ):
            await app.job("reports", job.id).result(timeout=10)
        for path in tmp_path.rglob("reports-*"):
            path.unlink()
        with pytest.raises(qbull.NotFound, match="it is kept there for"):
            await job.result(timeout=10)


class MemoryResults:
    """A place for results of one's own, which is full at first."""

    over = 10

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.full = True

    async def put(self, queue: str, id: str, result: bytes) -> str:
        if self.full:
            self.full = False
            raise OSError("no room")
        self.kept[f"{queue}/{id}"] = result
        return f"{queue}/{id}"

    async def get(self, reference: str) -> bytes:
        return self.kept[reference]


async def test_a_store_of_ones_own_may_fail_and_the_job_is_retried(server_url: str, store: Store) -> None:
    memory_results = MemoryResults()
    async with qbull.App(server_url, prefix="test", results=memory_results) as app:

        @app.queue("reports", retry=qbull.Retry(delays=(0,))).task
        async def render() -> list[int]:
            return list(range(100))

        job = await render.enqueue()
        async with app.worker():
            assert await job.result(timeout=10) == list(range(100))

        info = await job.info()
        assert info is not None
        assert [attempt.error for attempt in info.history] == ["OSError: no room"]
        assert list(memory_results.kept) == [f"reports/{job.id}"]


def test_a_place_for_results_must_have_its_shape() -> None:
    with pytest.raises(qbull.ConfigError, match="give something with over, put and get"):
        qbull.App(results="/srv/results")  # type: ignore[arg-type]
