"""Cancelling in the worker: what happens when a message is lost, a worker stops, or many are cancelled at once."""

from __future__ import annotations

import asyncio

import pytest
from partition_driver import STOPPED

import qbull
from conftest import eventually
from qbull.store.store import Store


async def _is(job: qbull.Job[object], state: str) -> bool:
    return await job.state() == state


async def mark_silently(store: Store, app: qbull.App, job: qbull.Job[object]) -> None:
    """The job is told to stop, and nobody hears of it."""
    base = store.names.partition("email", 0)
    place = await store.server.call("HGET", base + "index", job.id)
    await store.server.call("SADD", base + "extras", job.id)
    await store.server.call("HSET", base + "cancelling", job.id, place[1:] + b" " + STOPPED)


async def test_a_job_is_cancelled_although_the_message_was_lost(app: qbull.App, store: Store) -> None:
    @app.queue("email").task
    async def send() -> None:
        await asyncio.sleep(3600)

    job = await send.enqueue()
    async with app.worker():
        await eventually(lambda: _is(job, "active"))

        await mark_silently(store, app, job)

        with pytest.raises(qbull.JobCancelled, match="not wanted"):
            await job.result(timeout=10)


async def test_a_job_is_cancelled_while_its_worker_stops(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None:
        await asyncio.sleep(3600)

    job = await send.enqueue()
    worker = app.worker()
    await worker.start()
    await eventually(lambda: _is(job, "active"))
    stopping = asyncio.create_task(worker.stop(grace=60))
    await asyncio.sleep(0)

    await job.cancel()

    await asyncio.wait_for(stopping, 20)
    assert await job.state() == "cancelled"


async def test_a_job_that_is_given_back_when_its_worker_stops_is_cancelled(
    app: qbull.App, store: Store
) -> None:
    @app.queue("email").task
    async def send() -> None:
        await asyncio.sleep(3600)

    job = await send.enqueue()
    worker = app.worker()
    await worker.start()
    await eventually(lambda: _is(job, "active"))

    await mark_silently(store, app, job)
    await worker.stop(grace=0)

    assert await job.state() == "cancelled"


async def test_many_are_cancelled_at_once(app: qbull.App) -> None:
    ran: set[int] = set()

    @app.queue("email", concurrency=50, partitions=2).task
    async def send(n: int) -> None:
        ran.add(n)
        await asyncio.sleep(3600 if n % 2 else 0)

    jobs = await send.enqueue_many([{"n": n} for n in range(400)])
    delayed = await send.options(delay=3600).enqueue_many([{"n": n} for n in range(100)])
    async with app.worker() as worker:
        await eventually(lambda: _some(len(ran) > 60))
        words = await asyncio.gather(*(job.cancel() for job in (*jobs[1::2], *delayed)))
        await worker.drain()

    assert set(words) == {"cancelled", "cancelling"}
    assert [await job.state() for job in jobs[:10]] == ["completed", "cancelled"] * 5
    stats = await app.queues["email"].stats()
    assert (stats.completed, stats.cancelled) == (200, 300)


async def _some(fact: bool) -> bool:
    return fact


async def test_a_job_of_the_same_id_is_not_cancelled_for_the_one_before(app: qbull.App) -> None:
    @app.queue("email").task(id="one")
    async def send(forever: bool) -> str:
        await asyncio.sleep(3600 if forever else 0)
        return "sent"

    async with app.worker():
        for _ in range(3):
            job = await send.enqueue(forever=True)
            await eventually(lambda job=job: _is(job, "active"))  # type: ignore[misc]
            await job.cancel()
            await eventually(lambda job=job: _is(job, "cancelled"))  # type: ignore[misc]
            await job.remove()

            again = await send.enqueue(forever=False)
            assert await again.result(timeout=10) == "sent"
            await again.remove()
