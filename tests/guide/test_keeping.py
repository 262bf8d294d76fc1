"""Keeping: how many finished jobs stay, and for how long. Without `keep`, a day or 10,000 completed ones."""

from __future__ import annotations

import pytest

import qbull
from conftest import eventually


async def test_completed_jobs_are_kept_by_count(app: qbull.App) -> None:
    queue = app.queue("email", keep=qbull.Keep(completed=3), concurrency=1)

    @queue.task
    async def send(n: int) -> int:
        return n

    jobs = await send.enqueue_many([{"n": n} for n in range(10)])
    async with app.worker() as worker:
        await worker.drain()

    assert [job.result for job in await queue.jobs("completed")] == [9, 8, 7]
    assert await jobs[6].info() is None
    assert (await queue.stats()).total == 3


async def test_failed_jobs_are_kept_by_their_own_count(app: qbull.App) -> None:
    queue = app.queue("email", keep=qbull.Keep(failed=2), concurrency=1)

    @queue.task
    async def send(n: int) -> None:
        if n % 2:
            raise qbull.Fail(str(n))

    await send.enqueue_many([{"n": n} for n in range(10)])
    async with app.worker() as worker:
        await worker.drain()

    assert [job.error for job in await queue.jobs("failed")] == ["9", "7"]
    assert (await queue.stats()).completed == 5


async def test_the_count_is_for_each_partition(app: qbull.App) -> None:
    queue = app.queue("email", keep=qbull.Keep(completed=2), partitions=3)

    @queue.task
    async def send() -> None: ...

    await send.enqueue_many([{} for _ in range(30)])
    async with app.worker() as worker:
        await worker.drain()

    assert (await queue.stats()).completed == 6


async def test_older_ones_go_when_others_finish(app: qbull.App) -> None:
    @app.queue("email", keep=qbull.Keep(completed_for=0.1)).task
    async def send() -> str:
        return "sent"

    async with app.worker():
        first = await send.enqueue()
        await first.result(timeout=10)

        async def gone() -> bool:
            await (await send.enqueue()).result(timeout=10)
            return await first.state() is None

        await eventually(gone)

    with pytest.raises(qbull.NotFound):
        await first.result(timeout=10)


async def test_none_means_no_bound_of_that_kind(app: qbull.App) -> None:
    queue = app.queue("email", keep=qbull.Keep())

    @queue.task
    async def send() -> None: ...

    await send.enqueue_many([{} for _ in range(100)])
    async with app.worker() as worker:
        await worker.drain()

    assert (await queue.stats()).completed == 100


async def test_keeping_less_than_nothing_is_refused() -> None:
    with pytest.raises(qbull.ConfigError, match="0 keeps none"):
        qbull.Keep(completed=-1)
