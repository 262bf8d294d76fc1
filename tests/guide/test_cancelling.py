"""Cancelling: a job that is not to run, to stop, to run now or to go."""

from __future__ import annotations

import asyncio
import threading

import pytest

import qbull
from conftest import eventually


async def _is(job: qbull.Job[object], state: str) -> bool:
    return await job.state() == state


async def test_a_waiting_job_is_not_run(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("email").task
    async def send(n: int) -> None:
        ran.append(n)

    jobs = await send.enqueue_many([{"n": n} for n in range(3)])

    assert await jobs[1].cancel(reason="sent by hand") == "cancelled"

    async with app.worker() as worker:
        await worker.drain()
    info = await jobs[1].info()
    assert sorted(ran) == [0, 2]
    assert info is not None
    assert (info.state, info.error) == ("cancelled", "sent by hand")
    with pytest.raises(qbull.JobCancelled, match="was cancelled: sent by hand"):
        await jobs[1].result(timeout=10)


async def test_whoever_waits_for_a_job_is_told(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    job = await send.enqueue()
    waiting = asyncio.create_task(job.result(timeout=20))
    await asyncio.sleep(0.1)

    await job.cancel()

    with pytest.raises(qbull.JobCancelled):
        await waiting


async def test_a_running_coroutine_is_cancelled(app: qbull.App) -> None:
    cleaned = asyncio.Event()

    @app.queue("email").task
    async def send() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.set()

    job = await send.enqueue()
    async with app.worker():
        await eventually(lambda: _is(job, "active"))

        assert await job.cancel() == "cancelling"

        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=10)
    assert cleaned.is_set()
    info = await job.info()
    assert info is not None
    assert (info.state, info.error, info.attempt) == ("cancelled", "cancelled", 1)
    assert info.worker is not None


async def test_a_task_that_fails_while_it_is_cancelled_is_not_retried(app: qbull.App) -> None:
    runs = 0

    @app.queue("email", retry=qbull.Retry(attempts=5, delay=0)).task
    async def send() -> None:
        nonlocal runs
        runs += 1
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("while cleaning up")

    job = await send.enqueue()
    async with app.worker() as worker:
        await eventually(lambda: _is(job, "active"))
        await job.cancel()
        await worker.drain()

    assert await job.state() == "cancelled"
    assert runs == 1


async def test_a_task_that_swallows_its_cancellation_still_ends_as_cancelled(app: qbull.App) -> None:
    @app.queue("email", concurrency=1).task
    async def send() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "nevertheless"
        return "slept"

    job, following = await send.enqueue(), await send.enqueue()
    async with app.worker():
        await eventually(lambda: _is(job, "active"))
        await job.cancel()
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=10)

        await eventually(lambda: _is(following, "active"))
        await following.cancel()
        await eventually(lambda: _is(following, "cancelled"))


async def test_a_plain_function_can_ask_whether_it_was_cancelled(app: qbull.App) -> None:
    seen: list[bool] = []

    @app.queue("email", concurrency=1).task
    def send() -> str:
        job = qbull.current_job()
        seen.append(job.cancelled)
        while not job.cancelled:
            threading.Event().wait(0.01)
        seen.append(job.cancelled)
        return "stopped by itself"

    job, following = await send.enqueue(), await send.enqueue()
    async with app.worker():
        for each in (job, following):
            await eventually(lambda each=each: _is(each, "active"))  # type: ignore[misc]
            assert await each.cancel() == "cancelling"
            with pytest.raises(qbull.JobCancelled):
                await each.result(timeout=10)

    assert seen == [False, True, False, True]


async def test_a_plain_function_that_does_not_ask_is_waited_for(app: qbull.App) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.queue("email", order="key").task(key="k")
    def send() -> str:
        begun.set()
        go.wait(20)
        return "done all the same"

    job, behind = await send.enqueue(), await send.enqueue()
    async with app.worker():
        await asyncio.to_thread(begun.wait, 20)
        begun.clear()
        await job.cancel()
        await asyncio.sleep(1)

        assert not begun.is_set(), "the next of its lane must not begin while it runs"
        assert await job.state() == "active"
        go.set()
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=10)
        assert await behind.result(timeout=10) == "done all the same"


async def test_a_plain_function_learns_that_its_time_is_over(app: qbull.App) -> None:
    stopped = threading.Event()

    @app.queue("email", retry=qbull.Retry(attempts=1)).task(timeout=0.05)
    def send() -> None:
        job = qbull.current_job()
        while not job.cancelled:
            threading.Event().wait(0.01)
        stopped.set()

    job = await send.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="longer than its timeout"):
            await job.result(timeout=10)

    assert await asyncio.to_thread(stopped.wait, 10)


async def test_what_was_handed_over_and_not_begun_is_not_begun(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("email", concurrency=1, order="key").task(key="k")
    async def send(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(3600 if n == 1 else 0)

    jobs = await send.enqueue_many([{"n": n} for n in range(5)])
    async with app.worker() as worker:
        await eventually(lambda: _is(jobs[1], "active"))  # the first of a train that this worker has

        assert await jobs[3].cancel() == "cancelling"
        assert await jobs[1].cancel() == "cancelling"
        await worker.drain()

    assert ran == [0, 1, 2, 4]
    assert await jobs[3].state() == "cancelled"


async def test_a_job_of_another_worker_is_cancelled(app: qbull.App, server_url: str) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    async with qbull.App(server_url, prefix="test") as elsewhere:

        @elsewhere.queue("email").task(name="send")
        async def send_slowly() -> None:
            await asyncio.sleep(3600)

        job = await send.enqueue()
        async with elsewhere.worker():
            await eventually(lambda: _is(job, "active"))
            await app.job("email", job.id).cancel()
            await eventually(lambda: _is(job, "cancelled"))


async def test_those_behind_a_cancelled_job_come_next(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append(n)

    jobs = await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(6)])
    for n in (0, 3, 5):
        await jobs[n].cancel()
    async with app.worker() as worker:
        await worker.drain()

    assert ran == [1, 2, 4]


async def test_a_delayed_job_runs_now_when_it_is_promoted(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> str:
        return "sent"

    job = await send.options(delay=3600).enqueue()

    assert await job.promote() == "waiting"

    async with app.worker():
        assert await job.result(timeout=10) == "sent"
    with pytest.raises(qbull.Conflict, match="has completed"):
        await job.promote()


async def test_a_promoted_retry_keeps_its_place(app: qbull.App) -> None:
    ran: list[tuple[int, int]] = []

    @app.queue("chat", order="key", retry=qbull.Retry(delays=(3600,))).task(key="k")
    async def answer(n: int) -> None:
        attempt = qbull.current_job().attempt
        ran.append((n, attempt))
        if (n, attempt) == (0, 1):
            raise ConnectionError

    jobs = await answer.enqueue_many([{"n": n} for n in range(3)])
    async with app.worker() as worker:
        await eventually(lambda: _is(jobs[0], "delayed"))
        await jobs[0].promote()
        await worker.drain()

    assert ran == [(0, 1), (0, 2), (1, 1), (2, 1)]


async def test_a_removed_job_leaves_no_trace(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    job = await send.options(id="welcome").enqueue()

    assert await job.remove() == "removed"

    assert await job.info() is None
    assert (await send.options(id="welcome").enqueue()).created
    with pytest.raises(qbull.NotFound, match="no job nobody"):
        await app.job("email", "nobody").remove()


async def test_a_running_job_is_not_removed(app: qbull.App) -> None:
    go = asyncio.Event()

    @app.queue("email").task
    async def send() -> None:
        await go.wait()

    job = await send.enqueue()
    async with app.worker():
        await eventually(lambda: _is(job, "active"))

        with pytest.raises(qbull.Conflict, match=r"is running; cancel\(\) it first") as refused:
            await job.remove()

        go.set()
    assert refused.value.state == "active"


async def test_what_has_ended_cannot_be_cancelled(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    job = await send.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    with pytest.raises(qbull.Conflict, match="has completed; there is nothing to cancel"):
        await job.cancel()
    with pytest.raises(qbull.NotFound):
        await app.job("email", "nobody").cancel()


async def test_a_reason_with_half_a_character_is_taken(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    job = await send.enqueue()

    assert await job.cancel("wrong \ud800") == "cancelled"
    assert (await job.info()).error == "wrong ?"


async def test_many_jobs_are_cancelled_or_purged_by_filter(app: qbull.App) -> None:
    email = app.queue("email", partitions=2)

    @email.task
    async def remind(user: int) -> None: ...

    @email.task
    async def send(user: int) -> None: ...

    for user in range(4):
        await remind.options(delay=3600).enqueue(user)
        await send.enqueue(user)

    assert await email.cancel("delayed", task="remind", payload={"user": 2}, reason="left") == 1
    assert await email.cancel(task="remind") == 0, "only delayed ones are left"
    assert await email.cancel(task="send", limit=3) == 3
    assert await email.purge(task="send") == 1
    assert await email.purge("delayed") == 3

    [cancelled] = (await email.search("cancelled", task="remind")).jobs
    assert (cancelled.payload, cancelled.error) == ({"user": 2}, "left")
    assert (await email.stats()).cancelled == 4


async def test_only_jobs_that_have_not_ended_are_cancelled_or_purged(app: qbull.App) -> None:
    email = app.queue("email")

    with pytest.raises(qbull.ArgumentsError, match="use waiting, delayed or active"):
        await email.cancel("failed")
    with pytest.raises(qbull.ArgumentsError, match="use waiting or delayed"):
        await email.purge("active")
    with pytest.raises(qbull.ArgumentsError, match="limit=0"):
        await email.cancel(limit=0)
