"""Enqueueing: one, many, and from synchronous code. A call that returned means: the server has the job."""

from __future__ import annotations

import asyncio
import threading

import pytest

import qbull


async def test_enqueue_answers_when_the_server_has_the_job(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send(to: str) -> None: ...

    job = await send.enqueue("a@b.c")

    assert job.created is True
    assert job.queue == "email"
    assert await job.state() == "waiting"
    assert (await queue.stats()).waiting == 1


async def test_many_enqueues_at_a_time_are_all_there(app: qbull.App) -> None:
    queue = app.queue("email", partitions=3)

    @queue.task
    async def send(n: int) -> int:
        return n

    jobs = await asyncio.gather(*(send.enqueue(n) for n in range(500)))

    assert len({job.id for job in jobs}) == 500
    assert (await queue.stats()).waiting == 500


async def test_many_jobs_in_one_call(app: qbull.App) -> None:
    queue = app.queue("email", partitions=3)

    @queue.task
    async def send(n: int) -> int:
        return n

    jobs = await send.enqueue_many([{"n": n} for n in range(1200)])
    async with app.worker(concurrency=20) as worker:
        await worker.drain()

    assert [await job.result(timeout=10) for job in jobs[::100]] == list(range(0, 1200, 100))
    assert (await queue.stats()).completed == 1200


async def test_one_wrong_call_among_many_means_that_nothing_is_sent(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send(n: int) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match="n: expected int, got str"):
        await send.enqueue_many([{"n": 1}, {"n": 2}, {"n": "three"}])

    assert (await queue.stats()).total == 0


async def test_of_two_with_one_id_in_one_call_the_first_is_taken(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task(id="send:{to}")
    async def send(to: str, text: str) -> str:
        return text

    jobs = await send.enqueue_many(
        [{"to": "a", "text": "one"}, {"to": "b", "text": "two"}, {"to": "a", "text": "three"}]
    )
    async with app.worker():
        texts = [await job.result(timeout=10) for job in jobs]

    assert [job.created for job in jobs] == [True, True, False]
    assert texts == ["one", "two", "one"]


async def test_many_jobs_share_their_options(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send(n: int) -> None: ...

    await send.options(delay=60, priority=2).enqueue_many([{"n": 1}, {"n": 2}])

    assert [job.priority for job in await queue.jobs("delayed")] == [2, 2]


async def test_one_id_for_many_is_refused(app: qbull.App) -> None:
    @app.queue("email").task
    async def send(n: int) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match="one id cannot serve many jobs"):
        await send.options(id="same").enqueue_many([{"n": 1}, {"n": 2}])


async def test_none_are_many_too(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    assert await send.enqueue_many([]) == []


async def test_synchronous_code_can_enqueue(app: qbull.App) -> None:
    @app.queue("email").task
    async def send(to: str) -> str:
        return f"sent to {to}"

    def a_view_of_django() -> qbull.Job[str]:
        return send.enqueue_sync("a@b.c")

    job = await asyncio.to_thread(a_view_of_django)
    async with app.worker():
        assert await job.result(timeout=10) == "sent to a@b.c"
    await asyncio.to_thread(app.close_sync)


async def test_options_work_from_synchronous_code(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send() -> None: ...

    job = await asyncio.to_thread(send.options(delay=60, id="later").enqueue_sync)

    assert (job.id, await job.state()) == ("later", "delayed")
    await asyncio.to_thread(app.close_sync)


async def test_many_threads_can_enqueue_at_a_time(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send(n: int) -> None: ...

    def ten(first: int) -> None:
        for n in range(first, first + 10):
            send.enqueue_sync(n)

    threads = [threading.Thread(target=ten, args=(10 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert (await queue.stats()).waiting == 80
    await asyncio.to_thread(app.close_sync)


async def test_synchronous_code_can_ask_for_the_result(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> str:
        return "sent"

    async with app.worker():
        job = await asyncio.to_thread(send.enqueue_sync)
        result = await asyncio.to_thread(lambda: app.run_sync(job.result(timeout=10)))

    assert result == "sent"
    await asyncio.to_thread(app.close_sync)


async def test_the_synchronous_call_is_refused_where_it_would_block_an_event_loop(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def send() -> None: ...

    with pytest.raises(
        qbull.QbullError, match="would block the running event loop; await the asynchronous one"
    ):
        send.enqueue_sync()

    assert (await queue.stats()).total == 0
    await asyncio.to_thread(app.close_sync)
