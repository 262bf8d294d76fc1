"""Inside a task: what it can ask about its own job, and what it leaves behind for the next one (nothing)."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import datetime, timedelta

import pytest

import qbull

who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_task_can_ask_which_job_it_runs_for(app: qbull.App) -> None:
    seen: list[qbull.CurrentJob] = []

    @app.queue("chat").task(key="{phone}")
    async def answer(phone: str) -> None:
        seen.append(qbull.current_job())

    job = await answer.enqueue("+5435155")
    async with app.worker():
        await job.result(timeout=10)

    (current,) = seen
    info = await job.info()
    assert info is not None
    assert (current.id, current.queue, current.task) == (job.id, "chat", "answer")
    assert (current.key, current.attempt) == ("+5435155", 1)
    assert isinstance(current.enqueued_at, datetime)
    assert current.enqueued_at == info.created_at
    assert current.enqueued_at.utcoffset() == timedelta(0)


async def test_the_fence_rises_with_every_delivery(app: qbull.App) -> None:
    fences: list[int] = []

    @app.queue("chat", retry=qbull.Retry(delays=(0, 0.001, 0, 0.001))).task
    async def answer() -> None:
        fences.append(qbull.current_job().fence)
        if len(fences) < 5:
            raise ConnectionError

    job = await answer.enqueue()
    async with app.worker():
        await job.result(timeout=10)

    assert len(set(fences)) == 5
    assert fences == sorted(fences)


async def test_helpers_and_child_tasks_know_the_job_too(app: qbull.App) -> None:
    async def helper() -> str:
        return qbull.current_job().id

    @app.queue("chat").task
    async def answer() -> list[str]:
        async with asyncio.TaskGroup() as group:
            children = [group.create_task(helper()) for _ in range(2)]
        return [await helper(), *(child.result() for child in children)]

    job = await answer.enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == [job.id] * 3


async def test_outside_a_task_there_is_no_current_job() -> None:
    with pytest.raises(qbull.NotFound, match="is for code inside a task"):
        qbull.current_job()


async def test_two_jobs_at_a_time_each_see_their_own(app: qbull.App) -> None:
    both = asyncio.Barrier(2)

    @app.queue("chat", concurrency=2).task
    async def answer() -> str:
        await both.wait()
        return qbull.current_job().id

    jobs = await answer.enqueue_many([{}, {}])
    async with app.worker():
        assert [await job.result(timeout=10) for job in jobs] == [job.id for job in jobs]


@pytest.mark.parametrize("order", [None, "key"])
async def test_a_context_variable_set_in_one_job_is_not_seen_by_the_next(app: qbull.App, order: None) -> None:
    @app.queue("chat", concurrency=1, order=order).task(key="{phone}")
    async def answer(phone: str, name: str) -> str:
        before = who.get()
        who.set(name)
        return before

    jobs = await answer.enqueue_many([{"phone": "+1", "name": f"user {n}"} for n in range(10)])
    async with app.worker():
        before = [await job.result(timeout=10) for job in jobs]

    assert before == ["nobody"] * 10
    assert who.get() == "nobody"


async def test_a_context_variable_set_before_the_worker_is_seen_by_all(app: qbull.App) -> None:
    @app.queue("chat").task
    async def answer() -> str:
        return who.get()

    token = who.set("the worker")
    async with app.worker():
        found = await (await answer.enqueue()).result(timeout=10)
    who.reset(token)

    assert found == "the worker"


async def test_a_task_may_enqueue_other_jobs(app: qbull.App) -> None:
    queue = app.queue("chat")
    said: list[str] = []

    @queue.task
    async def say(text: str) -> None:
        said.append(text)

    @queue.task
    async def converse() -> None:
        await say.enqueue("hello")
        await say.enqueue("world")

    await converse.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    assert sorted(said) == ["hello", "world"]
