"""Looking: how many jobs are in which state, which ones, and everything that is known of one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import qbull
from conftest import eventually


async def test_stats_count_the_jobs_of_each_state(app: qbull.App) -> None:
    queue = app.queue("email", partitions=2, concurrency=1, retry=qbull.Retry(attempts=1))
    let_go = asyncio.Event()

    @queue.task
    async def send(what: str) -> None:
        if what == "fail":
            raise ValueError
        if what == "hang":
            await let_go.wait()

    async with app.worker() as worker:
        await send.enqueue_many([{"what": "fine"}, {"what": "fine"}, {"what": "fail"}])
        await worker.drain()
    async with app.worker():
        hanging = await send.options(key="a").enqueue("hang")
        await eventually(lambda: _is(hanging, "active"))
        await send.options(key="a").enqueue_many([{"what": "fine"}, {"what": "fine"}])
        await send.options(delay=60).enqueue("fine")

        stats = await queue.stats()
        let_go.set()

    assert (stats.waiting, stats.active, stats.delayed, stats.completed, stats.failed) == (2, 1, 1, 2, 1)
    assert stats.total == 7


async def test_stats_of_a_queue_that_was_never_used_are_zero(app: qbull.App) -> None:
    stats = await app.queue("email").stats()

    assert (stats.waiting, stats.active, stats.delayed, stats.completed, stats.failed, stats.total) == (
        0,
    ) * 6


async def test_jobs_of_a_state_are_listed(app: qbull.App) -> None:
    queue = app.queue("email", partitions=2)

    @queue.task
    async def send(n: int) -> int:
        return n

    await send.enqueue_many([{"n": n} for n in range(6)])
    later = await send.options(delay=60).enqueue(7)
    sooner = await send.options(delay=30).enqueue(8)

    assert sorted(job.payload["n"] for job in await queue.jobs("waiting")) == list(range(6))
    assert [job.id for job in await queue.jobs("delayed")] == [sooner.id, later.id]
    assert await queue.jobs("completed") == []
    assert len(await queue.jobs("waiting", start=2, end=5)) == 3


async def test_jobs_behind_others_of_their_key_are_listed_as_waiting(app: qbull.App) -> None:
    queue = app.queue("chat", order="key")

    @queue.task
    async def answer(n: int) -> None: ...

    await answer.options(key="+1").enqueue_many([{"n": n} for n in range(5)])

    assert sorted(job.payload["n"] for job in await queue.jobs("waiting")) == list(range(5))
    assert (await queue.stats()).waiting == 5


async def test_waiting_jobs_are_listed_in_the_order_in_which_they_will_run(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send(n: int) -> None: ...

    for priority in (9, 1, 5, 10):
        await send.options(priority=priority).enqueue(priority)

    assert [job.priority for job in await queue.jobs("waiting")] == [1, 5, 9, 10]


async def test_info_of_a_waiting_job(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(attempts=4)).task
    async def send(to: str) -> None: ...

    job = await send.options(priority=2, key="k").enqueue("a@b.c")

    info = await job.info()
    assert info is not None
    assert (info.id, info.queue, info.task, info.state) == (job.id, "email", "send", "waiting")
    assert (info.key, info.priority, info.payload) == ("k", 2, {"to": "a@b.c"})
    assert (info.attempt, info.max_attempts, info.crashes, info.history) == (1, 4, 0, ())
    assert (info.due_at, info.started_at, info.finished_at, info.duration_ms) == (None, None, None, None)
    assert (info.result, info.error, info.stacktrace, info.worker) == (None, None, None, None)
    assert info.created_at.utcoffset() == timedelta(0)


async def test_info_of_an_active_job_names_its_worker(app: qbull.App) -> None:
    let_go = asyncio.Event()

    @app.queue("email").task
    async def send() -> None:
        await let_go.wait()

    job = await send.enqueue()
    async with app.worker() as worker:
        await eventually(lambda: _is(job, "active"))
        info = await job.info()
        let_go.set()

    assert info is not None
    assert info.worker == worker.id


async def test_info_of_a_completed_job(app: qbull.App) -> None:
    @app.queue("email").task
    async def send(to: str) -> dict[str, int]:
        await asyncio.sleep(0.02)
        return {"bytes": 7}

    job = await send.enqueue("a@b.c")
    async with app.worker() as worker:
        await job.result(timeout=10)

    info = await job.info()
    assert info is not None
    assert (info.state, info.result, info.error, info.attempt) == ("completed", {"bytes": 7}, None, 1)
    assert info.worker == worker.id
    assert info.duration_ms is not None
    assert 19 < info.duration_ms < 10_000
    assert info.started_at is not None
    assert info.finished_at is not None
    assert info.created_at - timedelta(milliseconds=2) <= info.started_at <= info.finished_at


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("finished",),
            "state 'finished': use one of waiting, active, delayed, completed, failed, cancelled",
        ),
        (("failed", -1, 10), "jobs from -1 to 10"),
        (("failed", 10, 5), "jobs from 10 to 5"),
        (("failed", 0, 1001), "at most 1,000 at a time"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    app: qbull.App, arguments: tuple[object, ...], message: str
) -> None:
    queue = app.queue("email")

    with pytest.raises(qbull.ConfigError, match=message):
        await queue.jobs(*arguments)  # type: ignore[arg-type]


async def _is(job: qbull.Job[None], state: str) -> bool:
    return await job.state() == state


async def test_jobs_that_wait_are_found_by_task_key_and_arguments(app: qbull.App) -> None:
    queue = app.queue("email", partitions=2)

    @queue.task
    async def send(to: str, lines: int) -> None: ...

    @queue.task
    async def bill(to: str) -> None: ...

    await send.enqueue_many([{"to": "ada", "lines": n} for n in range(20)])
    await bill.options(key="k").enqueue("bob")
    await send.options(delay=60).enqueue("ada", 7)

    assert [job.task for job in (await queue.search("waiting", key="k")).jobs] == ["bill"]
    assert len((await queue.search("waiting", task="send", payload={"to": "ada"})).jobs) == 20
    assert len((await queue.search("delayed", payload={"lines": 7})).jobs) == 1


async def test_waiting_jobs_are_searched_page_by_page(app: qbull.App) -> None:
    queue = app.queue("email", partitions=3)

    @queue.task
    async def send(n: int) -> None: ...

    await send.enqueue_many([{"n": n} for n in range(500)])

    seen: list[int] = []
    cursor = None
    while True:
        page = await queue.search("waiting", limit=7, cursor=cursor)
        assert len(page.jobs) <= 7
        seen += [job.payload["n"] for job in page.jobs]
        cursor = page.next
        if cursor is None:
            break

    assert sorted(seen) == list(range(500))
