"""Chunks: tasks that take many jobs at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import qbull


@dataclass
class Click:
    user: int
    page: str = "/"


async def test_jobs_that_are_there_are_taken_together(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=50)
    chunks: list[list[Click]] = []

    @clicks.task(chunk=25, wait=5)
    async def store(rows: list[Click]) -> None:
        chunks.append(rows)

    jobs = await store.enqueue_many([{"item": Click(user)} for user in range(100)])
    async with app.worker():
        results = [await job.result(timeout=20) for job in jobs]

    assert [len(rows) for rows in chunks] == [25] * 4
    assert sorted(row.user for rows in chunks for row in rows) == list(range(100))
    assert results == [None] * 100


async def test_a_chunk_that_is_not_full_begins_after_a_while(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=50)
    chunks: list[list[int]] = []

    @clicks.task(chunk=25, wait=0.05)
    async def store(rows: list[int]) -> list[int]:
        chunks.append(rows)
        return [row * 2 for row in rows]

    async with app.worker():
        first, second = await store.enqueue(1), await store.enqueue(2)
        results = [await first.result(timeout=10), await second.result(timeout=10)]

    assert results == [2, 4]
    assert sorted(row for rows in chunks for row in rows) == [1, 2]


async def test_each_job_has_its_own_end(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10, retry=qbull.Retry(attempts=2, backoff="fixed", delay=0))
    seen: list[tuple[int, int]] = []

    @clicks.task(chunk=4, wait=0.2)
    async def store(rows: list[int]) -> list[int | Exception]:
        jobs = qbull.current_jobs()
        seen.extend((row, job.attempt) for row, job in zip(rows, jobs, strict=True))
        ends: dict[int, Any] = {1: qbull.Fail("never"), 2: ValueError("not yet"), 3: ValueError("not yet")}
        return [
            ends[row] if row in ends and (row != 3 or job.attempt == 1) else row
            for row, job in zip(rows, jobs, strict=True)
        ]

    jobs = [await store.enqueue(row) for row in range(4)]
    async with app.worker() as worker:
        await worker.drain()

    assert [await job.state() for job in jobs] == ["completed", "failed", "failed", "completed"]
    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert await jobs[3].result() == 3
    with pytest.raises(qbull.JobFailed, match="never"):
        await jobs[1].result()


async def test_what_the_function_raises_is_the_failure_of_all(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10)

    @clicks.task(chunk=3, wait=5)
    def store(rows: list[int]) -> None:
        raise qbull.Fail("the table is full")

    jobs = [await store.enqueue(row) for row in range(3)]
    async with app.worker():
        for job in jobs:
            with pytest.raises(qbull.JobFailed, match="the table is full"):
                await job.result(timeout=10)


@pytest.mark.timeout(60)
async def test_a_stop_iteration_for_one_job_is_a_failure_like_any_other(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10, retry=qbull.Retry(attempts=1))

    @clicks.task(chunk=3, wait=5)
    async def store(rows: list[int]) -> list[Any]:
        return [StopIteration("no more") if row == 1 else row for row in rows]

    jobs = [await store.enqueue(row) for row in range(3)]
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="StopIteration"):
            await jobs[1].result(timeout=20)
        results = [await jobs[0].result(timeout=20), await jobs[2].result(timeout=20)]

    assert results == [0, 2]


async def test_a_list_of_another_length_is_said(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10, retry=qbull.Retry(attempts=1, backoff="fixed", delay=1))

    @clicks.task(chunk=2, wait=5)
    async def store(rows: list[int]) -> list[int]:
        return [1]

    jobs = [await store.enqueue(row) for row in range(2)]
    async with app.worker():
        with pytest.raises(
            qbull.JobFailed, match="returned list for 2 jobs; return None, or a list with one"
        ):
            await jobs[0].result(timeout=10)


async def test_a_job_that_is_cancelled_leaves_the_others_alone(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10)
    begun, let_go = asyncio.Event(), asyncio.Event()

    @clicks.task(chunk=3, wait=5)
    async def store(rows: list[int]) -> list[int]:
        begun.set()
        await let_go.wait()
        return rows

    jobs = [await store.enqueue(row) for row in range(3)]
    async with app.worker():
        await begun.wait()
        await jobs[1].cancel()
        with pytest.raises(qbull.JobCancelled):
            await jobs[1].result(timeout=10)
        let_go.set()

        assert [await jobs[0].result(timeout=10), await jobs[2].result(timeout=10)] == [0, 2]


async def test_a_timeout_ends_a_call_that_nobody_waits_for_any_more(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10, retry=qbull.Retry(attempts=1, backoff="fixed", delay=1))
    ended = asyncio.Event()

    @clicks.task(chunk=2, wait=0.01, timeout=0.2)
    async def store(rows: list[int]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    jobs = [await store.enqueue(row) for row in range(2)]
    async with app.worker():
        for job in jobs:
            with pytest.raises(qbull.JobFailed, match="longer than its timeout"):
                await job.result(timeout=10)
        await asyncio.wait_for(ended.wait(), 10)


async def test_with_an_order_a_chunk_has_one_job_of_each_key(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=20, order="key")
    chunks: list[list[Click]] = []

    @clicks.task(chunk=4, wait=0.05, key="{item.page}")
    async def store(rows: list[Click]) -> None:
        chunks.append(rows)

    for user in range(3):
        for page in "abcd":
            await store.enqueue(Click(user, page))
    async with app.worker() as worker:
        await worker.drain()

    assert all(len({row.page for row in rows}) == len(rows) for rows in chunks)
    for page in "abcd":
        assert [row.user for rows in chunks for row in rows if row.page == page] == [0, 1, 2]


async def test_called_directly_it_is_still_the_function(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10)

    @clicks.task(chunk=10)
    async def double(rows: list[int]) -> list[int]:
        return [row * 2 for row in rows]

    assert await double([1, 2]) == [2, 4]


async def test_what_does_not_fit_is_refused_at_the_declaration(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=10)
    by_partition = app.queue("by-partition", concurrency=10, order="partition")

    async def rows(rows: list[int]) -> None: ...
    async def one(row: int) -> None: ...
    async def number(rows: list[int]) -> int: ...

    for queue, function, options, fact in [
        (clicks, rows, {"chunk": 11}, "give the queue concurrency=11 or more"),
        (clicks, rows, {"chunk": 1}, "give a whole number from 2"),
        (clicks, rows, {"chunk": 5, "wait": -1}, "give seconds from 0"),
        (clicks, rows, {"chunk": 5, "cpu": True}, "chunk and cpu"),
        (clicks, one, {"chunk": 5}, "takes one list"),
        (clicks, number, {"chunk": 5}, "returns None, or a list"),
        (by_partition, rows, {"chunk": 5}, "one job at a time"),
    ]:
        with pytest.raises(qbull.DeclarationError, match=fact):
            queue.task(**options)(function)  # type: ignore[call-overload]


async def test_a_function_of_a_bare_list_takes_chunks_too(app: qbull.App) -> None:
    clicks = app.queue("clicks", concurrency=4)

    @clicks.task(chunk=2, wait=5)
    async def double(rows: list) -> list:  # type: ignore[type-arg]
        return [2 * row for row in rows]

    jobs = await double.enqueue_many([{"item": 1}, {"item": 2}])
    async with app.worker():
        assert [await job.result(timeout=10) for job in jobs] == [2, 4]
