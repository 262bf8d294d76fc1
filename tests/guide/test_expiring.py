"""Expiring: what has not begun in time is cancelled, not run late."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from conftest import eventually


async def test_a_job_that_has_not_begun_in_time_is_cancelled(app: qbull.App) -> None:
    ran: list[str] = []

    @app.queue("push", concurrency=1).task
    async def push(text: str) -> None:
        ran.append(text)

    late = await push.options(expires=0.05).enqueue("late")
    early = await push.options(expires=60).enqueue("early")
    await _passes(late)
    async with app.worker() as worker:
        await worker.drain()

    assert ran == ["early"]
    assert (await late.state(), await early.state()) == ("cancelled", "completed")
    with pytest.raises(qbull.JobCancelled, match="expired"):
        await late.result(timeout=10)


async def _passes(job: qbull.Job[None]) -> None:
    """Wait until its time is over."""

    async def over() -> bool:
        info = await job.info()
        assert info is not None and info.expires_at is not None
        return datetime.now(UTC) > info.expires_at + timedelta(milliseconds=20)

    await eventually(over)


async def test_whoever_waits_for_its_result_is_told_while_the_queue_is_busy(app: qbull.App) -> None:
    let_go = asyncio.Event()
    queue = app.queue("push", concurrency=1)

    @queue.task
    async def block() -> None:
        await let_go.wait()

    @queue.task
    async def push() -> None: ...

    await block.enqueue()
    job = await push.options(expires=2).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobCancelled, match="expired"):
            await job.result(timeout=20)
        let_go.set()


async def test_delayed_jobs_and_those_behind_others_expire_too(app: qbull.App) -> None:
    ran: list[str] = []
    begun, let_go = asyncio.Event(), asyncio.Event()

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, text: str) -> None:
        ran.append(text)
        begun.set()
        await let_go.wait()

    async with app.worker() as worker:
        await answer.enqueue("+1", "first")
        await begun.wait()
        behind = await answer.options(expires=0.1).enqueue("+1", "behind")
        last = await answer.enqueue("+1", "last")
        delayed = await answer.options(delay=0.05, expires=0.1).enqueue("+1", "delayed")
        for job in (behind, delayed):
            with pytest.raises(qbull.JobCancelled):
                await job.result(timeout=20)
        let_go.set()
        await last.result(timeout=10)
        await worker.drain()

    assert ran == ["first", "last"]


async def test_a_job_that_has_begun_once_does_not_expire(app: qbull.App) -> None:
    attempts: list[int] = []

    @app.queue("push", retry=qbull.Retry(delays=(2.5,))).task
    async def push() -> str:
        attempts.append(qbull.current_job().attempt)
        if len(attempts) == 1:
            raise ConnectionError("away")
        return "pushed"

    async with app.worker():
        job = await push.options(expires=0.2).enqueue()

        assert await job.result(timeout=10) == "pushed"
    assert attempts == [1, 2]


async def test_a_task_can_expire_by_declaration_and_a_call_can_say_otherwise(app: qbull.App) -> None:
    @app.queue("push").task(expires=60)
    async def push() -> None: ...

    by_task = await (await push.enqueue()).info()
    by_call = await (await push.options(expires=3600).enqueue()).info()

    assert by_task is not None and by_call is not None
    assert by_task.expires_at is not None and by_call.expires_at is not None
    assert by_task.expires_at - by_task.created_at == timedelta(seconds=60)
    assert by_call.expires_at - by_call.created_at == timedelta(seconds=3600)


async def test_a_moment_can_be_given(app: qbull.App) -> None:
    @app.queue("push").task
    async def push() -> None: ...

    moment = datetime(2100, 1, 1, tzinfo=UTC)
    coming = await (await push.options(expires=moment).enqueue()).info()
    gone = await push.options(expires=datetime(2020, 1, 1, tzinfo=UTC)).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobCancelled):
            await gone.result(timeout=10)

    assert coming is not None and coming.expires_at == moment


async def test_a_renewed_unique_job_expires_when_the_newest_call_says(app: qbull.App) -> None:
    @app.queue("push").task(unique=qbull.Unique(window=60, by=(), mode="last"))
    async def push(text: str) -> str:
        return text

    await push.options(expires=0.1).enqueue("first")
    renewed = await push.options(expires=60).enqueue("second")
    info = await renewed.info()
    assert info is not None and info.expires_at is not None
    assert info.expires_at - datetime.now(UTC) > timedelta(seconds=30)
    async with app.worker():
        assert await renewed.result(timeout=10) == "second"


def test_what_cannot_be_is_refused(app: qbull.App) -> None:
    queue = app.queue("push")

    @queue.task
    async def push() -> None: ...

    for expires, fact in (
        (0, "must be more than 0 seconds"),
        (datetime(2030, 1, 1), "has no time zone"),
        ("soon", "give seconds or a moment"),
    ):
        with pytest.raises(qbull.ArgumentsError, match=fact):
            push.options(expires=expires)  # type: ignore[arg-type]
    with pytest.raises(qbull.ArgumentsError, match="it would expire before it is due"):
        push.options(delay=60, expires=30)
    with pytest.raises(qbull.DeclarationError, match="expires=-1"):
        queue.task(name="other", expires=-1)(lambda: None)
