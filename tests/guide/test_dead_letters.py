"""Dead letters: the jobs that failed for good, kept with everything a person needs to understand them."""

from __future__ import annotations

import pytest

import qbull


async def test_a_dead_letter_keeps_payload_error_and_stacktrace(app: qbull.App) -> None:
    queue = app.queue("billing", retry=qbull.Retry(attempts=2, delay=0))

    @queue.task(key="{customer}")
    async def charge(customer: str, amount: int) -> None:
        raise LookupError(f"{customer} has no card")

    job = await charge.enqueue("c1", amount=5)
    async with app.worker() as worker:
        await worker.drain()

    (dead,) = await queue.jobs("failed")
    assert (dead.id, dead.queue, dead.task, dead.key) == (job.id, "billing", "charge", "c1")
    assert dead.payload == {"customer": "c1", "amount": 5}
    assert (dead.state, dead.attempt, dead.max_attempts) == ("failed", 2, 2)
    assert dead.error == "LookupError: c1 has no card"
    assert dead.stacktrace is not None
    assert 'raise LookupError(f"{customer} has no card")' in dead.stacktrace
    assert dead.finished_at is not None
    assert dead.finished_at >= dead.created_at


async def test_dead_letters_are_listed_newest_first_and_in_pages(app: qbull.App) -> None:
    queue = app.queue("billing", concurrency=1)

    @queue.task
    async def charge(n: int) -> None:
        raise qbull.Fail(f"number {n}")

    await charge.enqueue_many([{"n": n} for n in range(5)])
    async with app.worker() as worker:
        await worker.drain()

    assert [job.error for job in await queue.jobs("failed")] == [f"number {n}" for n in (4, 3, 2, 1, 0)]
    assert [job.error for job in await queue.jobs("failed", start=1, end=3)] == ["number 3", "number 2"]
    assert await queue.jobs("failed", start=5, end=10) == []
    assert (await queue.stats()).failed == 5


async def test_a_job_for_an_unknown_task_becomes_a_dead_letter(app: qbull.App, server_url: str) -> None:
    @app.queue("billing").task
    async def charge() -> None: ...

    async with qbull.App(server_url, prefix="test") as elsewhere:

        @elsewhere.queue("billing").task
        async def refund() -> None: ...

        job = await charge.enqueue()
        async with elsewhere.worker():
            with pytest.raises(qbull.JobFailed) as failed:
                await job.result(timeout=10)

    assert failed.value.error == 'no task "charge" is registered in this worker; it knows: refund'


async def test_arguments_that_no_longer_fit_become_a_dead_letter(app: qbull.App, server_url: str) -> None:
    @app.queue("billing").task(name="charge")
    async def old_charge(customer: int) -> None: ...

    async with qbull.App(server_url, prefix="test") as newer:

        @newer.queue("billing").task(name="charge")
        async def new_charge(customer: str, currency: str) -> None: ...

        job = await old_charge.enqueue(5)
        async with newer.worker():
            with pytest.raises(qbull.JobFailed) as failed:
                await job.result(timeout=10)

    assert failed.value.error.startswith('task "charge": ')
    info = await job.info()
    assert info is not None
    assert info.attempt == 1


async def test_a_result_that_cannot_travel_makes_a_dead_letter_at_once(app: qbull.App) -> None:
    runs = 0

    @app.queue("billing", retry=qbull.Retry(attempts=3, delay=0)).task
    async def charge() -> object:
        nonlocal runs
        runs += 1
        return object()

    job = await charge.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed) as failed:
            await job.result(timeout=10)

    assert failed.value.error.startswith("its result cannot be encoded: ")
    assert runs == 1


async def test_a_result_beyond_the_limit_makes_a_dead_letter_at_once(app: qbull.App, server_url: str) -> None:
    async with qbull.App(server_url, prefix="test", payload_limit=100) as small:

        @small.queue("billing").task
        async def report() -> str:
            return "x" * 200

        job = await report.enqueue()
        async with small.worker():
            with pytest.raises(qbull.JobFailed, match="its result takes 202 bytes, the limit is 100"):
                await job.result(timeout=10)
