"""Retries: an exception is a failed attempt, and the queue's or the task's `retry` says what comes next."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import qbull
from conftest import eventually


async def test_a_job_that_fails_is_run_again(app: qbull.App) -> None:
    attempts: list[int] = []

    @app.queue("email", retry=qbull.Retry(delays=(0.01, 0.02))).task
    async def flaky() -> str:
        attempts.append(qbull.current_job().attempt)
        if len(attempts) < 3:
            raise ConnectionError("mail server away")
        return "sent"

    job = await flaky.enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == "sent"

    assert attempts == [1, 2, 3]


async def test_between_attempts_a_job_is_delayed_and_says_why(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(delays=(60,))).task
    async def flaky() -> None:
        raise ConnectionError("mail server away")

    job = await flaky.enqueue()
    async with app.worker():
        await eventually(lambda: _is(job, "delayed"))

    info = await job.info()
    assert info is not None
    assert info.error == "ConnectionError: mail server away"
    assert (info.attempt, info.max_attempts) == (2, 2)
    assert info.due_at is not None
    assert info.due_at - info.created_at >= timedelta(seconds=60)


async def test_every_attempt_that_failed_is_in_the_history(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(attempts=3, backoff="exponential", delay=0.05)).task
    async def flaky() -> None:
        raise ConnectionError(f"mail server away, attempt {qbull.current_job().attempt}")

    job = await flaky.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    info = await job.info()
    assert info is not None
    first, second = info.history
    assert (first.attempt, first.error) == (1, "ConnectionError: mail server away, attempt 1")
    assert (second.attempt, second.error) == (2, "ConnectionError: mail server away, attempt 2")
    assert (info.attempt, info.error) == (3, "ConnectionError: mail server away, attempt 3")
    assert first.worker == second.worker == info.worker == worker.id


async def test_exponential_waits_double(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(attempts=4, backoff="exponential", delay=0.05)).task
    async def flaky() -> None:
        raise ConnectionError

    job = await flaky.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    info = await job.info()
    assert info is not None
    one, two, three = (attempt.at for attempt in info.history)
    assert one is not None and two is not None and three is not None
    assert two - one >= timedelta(milliseconds=49)
    assert three - two >= timedelta(milliseconds=99)


async def test_after_the_last_attempt_a_job_is_a_dead_letter(app: qbull.App) -> None:
    runs = 0

    @app.queue("email", retry=qbull.Retry(attempts=3, backoff="fixed", delay=0)).task
    async def broken() -> None:
        nonlocal runs
        runs += 1
        raise ZeroDivisionError("by zero")

    job = await broken.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="ZeroDivisionError: by zero"):
            await job.result(timeout=10)

    assert runs == 3
    assert await job.state() == "failed"


async def test_a_task_may_have_a_rule_of_its_own(app: qbull.App) -> None:
    queue = app.queue("email", retry=qbull.Retry(attempts=5, delay=0))
    runs: list[str] = []

    @queue.task(retry=qbull.Retry(attempts=1))
    async def once() -> None:
        runs.append("once")
        raise ValueError

    await once.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    assert runs == ["once"]


async def test_every_handle_knows_how_many_attempts_a_job_has(app: qbull.App) -> None:
    queue = app.queue("email", retry=qbull.Retry(attempts=5))

    @queue.task(retry=qbull.Retry(attempts=2))
    async def twice() -> None: ...

    job = await twice.enqueue()

    infos = [await job.info(), await app.job("email", job.id).info(), *await queue.jobs("waiting")]
    assert [info.max_attempts for info in infos if info is not None] == [2, 2, 2]


async def test_a_task_may_ask_to_be_run_later(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(attempts=1)).task
    async def polite() -> str:
        if qbull.current_job().attempt < 4:
            raise qbull.RetryAfter(0.01, "too many requests")
        return "done"

    job = await polite.enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == "done"

    info = await job.info()
    assert info is not None
    assert [attempt.error for attempt in info.history] == ["too many requests"] * 3


async def test_a_task_may_give_up_at_once(app: qbull.App) -> None:
    runs = 0

    @app.queue("email", retry=qbull.Retry(attempts=5, delay=0)).task
    async def hopeless() -> None:
        nonlocal runs
        runs += 1
        raise qbull.Fail("there is no such address")

    job = await hopeless.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=10)

    assert runs == 1
    assert failed.value.error == "there is no such address"


async def test_jobs_behind_a_retrying_one_are_not_held_up(app: qbull.App) -> None:
    @app.queue("email", concurrency=1, retry=qbull.Retry(delays=(60,))).task
    async def send(fails: bool) -> str:
        if fails:
            raise ConnectionError
        return "sent"

    waiting = await send.enqueue(True)
    behind = await send.enqueue(False)
    async with app.worker():
        assert await behind.result(timeout=10) == "sent"
        await eventually(lambda: _is(waiting, "delayed"))


async def test_cancellation_that_is_not_the_workers_is_a_failed_attempt(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(attempts=1)).task
    async def waits_for_something_that_is_cancelled() -> None:
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        await other

    job = await waits_for_something_that_is_cancelled.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="something it waited for was cancelled"):
            await job.result(timeout=10)


async def _is(job: qbull.Job[None] | qbull.Job[str], state: str) -> bool:
    return await job.state() == state
