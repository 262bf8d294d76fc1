"""Dead letters: the jobs that failed for good, kept with everything a person needs to understand them."""

from __future__ import annotations

from datetime import timedelta

import pytest

import qbull
from conftest import eventually


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


@pytest.mark.parametrize("level", ["INFO", "ERROR"])
async def test_the_tracebacks_of_the_last_five_attempts_stay_even_after_a_success(
    app: qbull.App, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "qbull.worker")
    queue = app.queue("billing", retry=qbull.Retry(attempts=9, delay=0))

    @queue.task
    async def charge(long: int) -> str:
        attempt = qbull.current_job().attempt
        if attempt < 9:
            raise LookupError(f"attempt {attempt} " + "x" * long)
        return "charged"

    job, long = await charge.enqueue(0), await charge.enqueue(3_000)
    async with app.worker() as worker:
        await worker.drain()

    info, bounded = await job.info(), await long.info()
    assert info is not None
    assert bounded is not None
    assert info.state == "completed"
    assert [one.error for one in info.history] == [f"LookupError: attempt {n} " for n in range(1, 9)]
    assert [one.stacktrace is not None for one in info.history] == [False] * 3 + [True] * 5
    assert 'raise LookupError(f"attempt {attempt} "' in (info.history[-1].stacktrace or "")
    assert max(len(one.stacktrace or "") for one in bounded.history) <= 4_002


async def test_a_redriven_job_keeps_the_traceback_of_its_last_run(app: qbull.App) -> None:
    queue = app.queue("billing", retry=qbull.Retry(attempts=1))

    @queue.task
    async def charge() -> None:
        raise LookupError("no card")

    job = await charge.enqueue()
    async with app.worker() as worker:
        await worker.drain()
    await job.retry()

    info = await job.info()
    assert info is not None
    assert 'raise LookupError("no card")' in (info.history[0].stacktrace or "")


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


async def test_a_job_for_an_unknown_task_waits_for_a_worker_that_knows_it(
    app: qbull.App, server_url: str
) -> None:
    @app.queue("billing").task
    async def charge() -> None: ...

    async with qbull.App(server_url, prefix="test") as elsewhere:

        @elsewhere.queue("billing").task
        async def refund() -> None: ...

        job = await charge.enqueue()

        async def waits() -> bool:
            return "no live worker of the queue knows task" in (await job.why()).text

        async with elsewhere.worker():
            await eventually(waits)
    async with app.worker():
        await job.result(timeout=20)


async def test_arguments_that_no_longer_fit_become_a_dead_letter(
    app: qbull.App, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.worker.unpark.MISFIT_GRACE_SECONDS", 0.5)

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


class Counter:
    """A queue with dead letters of two tasks and three kinds of failure."""

    def __init__(self, app: qbull.App, partitions: int = 1) -> None:
        self.app = app
        self.queue = app.queue("billing", partitions=partitions, concurrency=1)

        @self.queue.task
        async def charge(n: int) -> None:
            raise qbull.Fail(f"user {n} has no card" if n % 3 else f"till 0x{n:08x} is broken")

        @self.queue.task
        async def refund(n: int) -> None:
            raise qbull.Fail(f"user {n} has no card")

        self.charge, self.refund = charge, refund

    async def fill(self) -> None:
        await self.charge.enqueue_many([{"n": n} for n in range(30)])
        async with self.app.worker() as worker:
            await worker.drain()
            await self.refund.enqueue_many([{"n": n} for n in range(5)])
            await worker.drain()


async def test_dead_letters_are_found_by_task_error_and_time(app: qbull.App) -> None:
    counter = Counter(app)
    await counter.fill()
    [middle] = (await counter.queue.search("failed", error_contains="user 14 ")).jobs
    assert middle.finished_at is not None

    refunds = await counter.queue.search("failed", task="refund")
    broken = await counter.queue.search("failed", error_contains="TILL")
    older = await counter.queue.search(before=middle.finished_at)
    newer = await counter.queue.search(after=middle.finished_at + timedelta(milliseconds=1))

    assert [job.payload["n"] for job in refunds.jobs] == [4, 3, 2, 1, 0]
    assert [job.payload["n"] for job in broken.jobs] == list(range(27, -1, -3))
    assert {job.id for job in older.jobs} & {job.id for job in newer.jobs} == set()
    assert len(older.jobs) + len(newer.jobs) == 35
    assert middle.id in {job.id for job in older.jobs}


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_search_comes_in_pages_that_leave_nothing_out(app: qbull.App, partitions: int) -> None:
    counter = Counter(app, partitions)
    await counter.fill()

    pages = [await counter.queue.search("failed", error_contains="user", limit=7)]
    while (cursor := pages[-1].next) is not None:
        pages.append(await counter.queue.search("failed", error_contains="user", limit=7, cursor=cursor))

    found = [job for page in pages for job in page.jobs]
    assert [len(page.jobs) for page in pages[:3]] == [7, 7, 7]
    assert len({job.id for job in found}) == len(found) == 25
    times = [job.finished_at for job in found if job.finished_at is not None]
    assert times == sorted(times, reverse=True)


async def test_dead_letters_are_grouped_by_what_failed(app: qbull.App) -> None:
    counter = Counter(app)
    await counter.fill()

    cards, tills = await counter.queue.failures()

    assert (cards.count, cards.error, cards.tasks) == (25, "user <n> has no card", ("charge", "refund"))
    assert (tills.count, tills.error, tills.tasks) == (10, "till <address> is broken", ("charge",))
    assert cards.first_at <= tills.last_at <= cards.last_at
    of_group = await counter.queue.search("failed", fingerprint=tills.fingerprint)
    assert len(of_group.jobs) == 10
    assert of_group.jobs[0].id == tills.last
    assert sum(group.count for group in await counter.queue.failures(scan=12)) == 12


async def test_dead_letters_are_removed_one_or_many(app: qbull.App) -> None:
    counter = Counter(app)
    await counter.fill()
    [one] = (await counter.queue.search("failed", error_contains="user 14 ")).jobs

    assert await counter.queue.job(one.id).remove() == "removed"
    refunds = await counter.queue.clean("failed", task="refund")
    young = await counter.queue.clean("failed", older_than=3600)
    some = await counter.queue.clean("failed", limit=4)
    rest = await counter.queue.clean("failed")

    assert (refunds, young, some, rest) == (5, 0, 4, 25)
    assert (await counter.queue.stats()).total == 0


async def test_a_search_that_makes_no_sense_is_refused(app: qbull.App) -> None:
    queue = app.queue("billing")

    with pytest.raises(qbull.ArgumentsError, match="state 'late': use one of waiting, active, delayed"):
        await queue.search("late")  # type: ignore[arg-type]
    with pytest.raises(qbull.ArgumentsError, match="limit=2000: give a whole number from 1 to 1,000"):
        await queue.search("failed", limit=2000)
    with pytest.raises(qbull.ArgumentsError, match="cursor='yesterday': give the `next` of the page before"):
        await queue.search("failed", cursor="yesterday")
    with pytest.raises(qbull.ArgumentsError, match="older_than=-1"):
        await queue.clean("failed", older_than=-1)
