"""Workers: `async with app.worker()` runs jobs in this process. Nothing that a job does can end it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

import qbull
from conftest import eventually


async def test_drain_runs_until_nothing_is_left_retries_and_delayed_jobs_included(app: qbull.App) -> None:
    queue = app.queue("email", retry=qbull.Retry(delays=(0.05,)))

    @queue.task
    async def send(fails_first: bool) -> None:
        if fails_first and qbull.current_job().attempt == 1:
            raise ConnectionError

    await send.enqueue(False)
    await send.enqueue(True)
    await send.options(delay=0.1).enqueue(True)
    async with app.worker() as worker:
        await worker.drain()
        stats = await queue.stats()

    assert (stats.completed, stats.total) == (3, 3)


async def test_draining_an_empty_queue_returns_at_once(app: qbull.App) -> None:
    app.queue("email")

    async with app.worker() as worker, asyncio.timeout(5):
        await worker.drain()


async def test_a_worker_serves_the_queues_it_is_told_to(app: qbull.App) -> None:
    email, reports = app.queue("email"), app.queue("reports")

    @email.task
    async def send() -> str:
        return "sent"

    @reports.task
    async def render() -> str:
        return "rendered"

    sent, rendered = await send.enqueue(), await render.enqueue()
    async with app.worker(queues=["email"]) as worker:
        await worker.drain()

    assert (await sent.state(), await rendered.state()) == ("completed", "waiting")


async def test_a_worker_runs_at_most_so_many_jobs_at_a_time(app: qbull.App) -> None:
    running = most = 0

    @app.queue("email", concurrency=3).task
    async def send() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await send.enqueue_many([{} for _ in range(30)])
    async with app.worker() as worker:
        await worker.drain()

    assert most == 3


async def test_jobs_that_come_one_after_the_other_fill_every_slot(app: qbull.App) -> None:
    all_of_them = asyncio.Barrier(4)

    @app.queue("email", concurrency=4).task
    async def meet() -> None:
        await all_of_them.wait()

    async with app.worker():
        jobs = [await meet.enqueue() for _ in range(4)]

        for job in jobs:
            await job.result(timeout=10)


async def test_no_job_waits_behind_a_long_one_while_another_worker_is_free(app: qbull.App) -> None:
    let_go = asyncio.Event()

    @app.queue("email", concurrency=1).task
    async def send(long: bool = False) -> str:
        if long:
            await let_go.wait()
        return "sent"

    async with app.worker() as one, app.worker():
        await send.enqueue_many([{} for _ in range(20)])
        await one.drain()
        long = await send.enqueue(long=True)

        async def active() -> bool:
            return await long.state() == "active"

        await eventually(active)
        jobs = [await send.enqueue() for _ in range(6)]
        try:
            for job in jobs:
                assert await job.result(timeout=5) == "sent"
        finally:
            let_go.set()


async def test_the_worker_may_be_given_another_concurrency(app: qbull.App) -> None:
    all_there = asyncio.Barrier(8)

    @app.queue("email", concurrency=1).task
    async def meet() -> None:
        await all_there.wait()

    jobs = await meet.enqueue_many([{} for _ in range(8)])
    async with app.worker(concurrency=8):
        for job in jobs:
            await job.result(timeout=10)


async def test_a_worker_lets_running_jobs_end_before_it_stops(app: qbull.App) -> None:
    started, let_go = asyncio.Event(), asyncio.Event()

    @app.queue("email").task
    async def send() -> str:
        started.set()
        await let_go.wait()
        return "sent"

    job = await send.enqueue()
    async with app.worker():
        await started.wait()
        asyncio.get_running_loop().call_later(0.02, let_go.set)

    assert await job.result(timeout=10) == "sent"


async def test_what_a_worker_did_not_begin_is_there_for_the_next(app: qbull.App) -> None:
    started, let_go = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @app.queue("email", concurrency=1).task
    async def send(n: int) -> None:
        ran.append(n)
        started.set()
        await let_go.wait()

    await send.enqueue_many([{"n": n} for n in range(5)])
    async with app.worker():
        await started.wait()
        asyncio.get_running_loop().call_later(0.02, let_go.set)
    ran_first = len(ran)
    async with app.worker() as second:
        await second.drain()

    assert ran_first < 5
    assert ran == [0, 1, 2, 3, 4]


async def test_a_job_that_does_not_end_in_time_is_given_back_and_nothing_is_counted_against_it(
    app: qbull.App,
) -> None:
    started = asyncio.Event()
    attempts: list[int] = []

    @app.queue("email", retry=qbull.Retry(attempts=1)).task
    async def send() -> str:
        attempts.append(qbull.current_job().attempt)
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()
        return "sent"

    job = await send.enqueue()
    worker = app.worker()
    await worker.start()
    await started.wait()
    await worker.stop(grace=0)
    async with app.worker():
        assert await job.result(timeout=10) == "sent"

    assert attempts == [1, 1]


async def test_a_worker_may_be_stopped_twice(app: qbull.App) -> None:
    app.queue("email")

    async with app.worker() as worker:
        await worker.stop()


async def test_a_worker_starts_before_the_first_job_and_hears_of_it(app: qbull.App) -> None:
    @app.queue("email", partitions=3).task
    async def send() -> str:
        return "sent"

    async with app.worker():
        assert await (await send.enqueue()).result(timeout=10) == "sent"
        assert await (await send.options(priority=1).enqueue()).result(timeout=10) == "sent"
        assert await (await send.options(delay=0.01).enqueue()).result(timeout=10) == "sent"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("an error that cannot be shown")


class Fundamental(BaseException):
    pass


async def leaves() -> None:
    sys.exit(3)


def leaves_from_a_thread() -> None:
    sys.exit(3)


async def presses_control_c() -> None:
    raise KeyboardInterrupt


async def raises_a_group() -> None:
    raise ExceptionGroup("two", [ValueError("a"), TypeError("b")])


async def is_cancelled() -> None:
    raise asyncio.CancelledError


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def raises_what_cannot_be_shown() -> None:
    raise Unspeakable


async def raises_something_fundamental() -> None:
    raise Fundamental("not an Exception")


async def closes_the_generator() -> None:
    raise GeneratorExit


def stops_the_iteration() -> None:
    next(iter(()))


async def asks_for_never() -> None:
    raise qbull.RetryAfter(float("inf"))


async def asks_for_no_number() -> None:
    raise qbull.RetryAfter(float("nan"))


@pytest.mark.parametrize(
    "bad",
    [
        leaves,
        leaves_from_a_thread,
        presses_control_c,
        raises_a_group,
        is_cancelled,
        cancels_itself,
        raises_what_cannot_be_shown,
        raises_something_fundamental,
        closes_the_generator,
        stops_the_iteration,
        asks_for_never,
        asks_for_no_number,
    ],
    ids=lambda function: function.__name__,
)
async def test_a_task_may_raise_what_it_will_and_the_worker_goes_on(
    app: qbull.App, bad: Callable[[], Any]
) -> None:
    queue = app.queue("email", concurrency=1, retry=qbull.Retry(attempts=1))

    @queue.task
    async def good() -> str:
        return "still here"

    raising = await queue.task(bad).enqueue()
    after = await good.enqueue()
    worker = app.worker()
    await worker.start()
    try:
        assert await after.result(timeout=5) == "still here"
        with pytest.raises(qbull.JobFailed):
            await raising.result(timeout=5)
    finally:
        await worker.stop(grace=0.1)


async def test_a_task_that_swallows_its_timeout_harms_no_later_one(app: qbull.App) -> None:
    queue = app.queue("email", concurrency=1, retry=qbull.Retry(attempts=1))

    @queue.task(timeout=0.02)
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    waits = queue.task(is_cancelled)

    @queue.task
    async def good() -> str:
        return "still here"

    await stubborn.enqueue()
    await waits.enqueue()
    job = await good.enqueue()
    worker = app.worker()
    await worker.start()
    try:
        assert await job.result(timeout=5) == "still here"
    finally:
        await worker.stop(grace=0.1)


async def test_a_worker_survives_an_app_that_empties_its_queue_while_it_runs(app: qbull.App) -> None:
    queue = app.queue("email", keep=qbull.Keep(completed=0))

    @queue.task
    async def send() -> None: ...

    async def empty() -> bool:
        return (await queue.stats()).total == 0

    async with app.worker():
        for _ in range(3):
            await send.enqueue_many([{} for _ in range(50)])
            await eventually(empty)
