"""Progress and logs: what a job says of itself while it runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store


async def test_the_progress_of_a_job_is_seen_while_it_runs_and_after_it(app: qbull.App) -> None:
    go = asyncio.Event()
    queue = app.queue("reports")

    @queue.task
    async def render() -> None:
        job = qbull.current_job()
        await job.progress(33)
        await go.wait()
        await job.progress(99.5)

    job = await render.enqueue()
    before = await job.info()
    async with app.worker():
        await eventually(lambda: _progress_is(job, 33))
        [listed] = await queue.jobs("active")
        go.set()
        await job.result(timeout=10)

    after = await job.info()
    assert before is not None
    assert after is not None
    assert (before.progress, listed.progress, after.progress) == (None, 33, 99.5)
    assert [each.progress for each in await queue.jobs("completed")] == [99.5]
    assert [each.progress for each in (await queue.search("completed")).jobs] == [99.5]


async def test_a_job_tells_how_much_of_how_much_is_done(app: qbull.App) -> None:
    go = asyncio.Event()
    queue = app.queue("imports")

    @queue.task
    async def load(rows: int) -> None:
        job = qbull.current_job()
        await job.progress(rows // 4, rows, "reading rows")
        await go.wait()
        await job.progress(rows, total=rows)

    job = await load.enqueue(200_000)
    async with app.worker():
        await eventually(lambda: _progress_is(job, 25))
        [listed] = await queue.jobs("active")
        go.set()
        await job.result(timeout=10)

    after = await job.info()
    assert (listed.progress_done, listed.progress_total, listed.progress_note) == (
        50_000,
        200_000,
        "reading rows",
    )
    assert after is not None
    assert (after.progress, after.progress_done, after.progress_note) == (100, 200_000, None)


@pytest.mark.parametrize(
    ("done", "total", "message"),
    [
        (3, 2, "progress 3 of 2: give a number from 0 to 2"),
        (1, 0, "total=0: give a number that is more than 0"),
        (1, -1, "total=-1"),
        (-1, 2, "progress -1 of 2"),
    ],
)
async def test_progress_is_not_more_than_its_total(
    app: qbull.App, done: float, total: float, message: str
) -> None:
    @app.queue("imports", retry=qbull.Retry(attempts=1)).task
    async def load() -> None:
        await qbull.current_job().progress(done, total)

    job = await load.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=message):
            await job.result(timeout=10)


async def test_of_many_values_the_last_is_kept_and_few_are_sent(app: qbull.App, store: Store) -> None:
    @app.queue("reports").task
    async def render() -> None:
        for n in range(10_001):
            await qbull.current_job().progress(n / 100)

    job = await render.enqueue()
    async with app.worker():
        await store.server.call("CONFIG", "RESETSTAT")
        await job.result(timeout=10)
        sent = await _calls_of(store, "hset")

    info = await job.info()
    assert info is not None
    assert info.progress == 100
    assert sent < 50


async def test_a_job_that_fails_has_said_how_far_it_came(app: qbull.App) -> None:
    @app.queue("reports", retry=qbull.Retry(attempts=1)).task
    async def render() -> None:
        for n in (10, 20, 30):
            await qbull.current_job().progress(n)
        await qbull.current_job().log("now it breaks")
        raise ValueError

    job = await render.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    info = await job.info()
    assert info is not None
    assert (info.state, info.progress) == ("failed", 30)
    assert [line.text for line in await job.logs()] == ["now it breaks"]


@pytest.mark.parametrize("value", [-1, 101, "half", True, float("nan")])
async def test_progress_is_a_number_from_0_to_100(app: qbull.App, value: float) -> None:
    @app.queue("reports", retry=qbull.Retry(attempts=1)).task
    async def render() -> None:
        await qbull.current_job().progress(value)

    job = await render.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="give a number from 0 to 100"):
            await job.result(timeout=10)


async def test_lines_are_kept_in_order_with_time_and_attempt(app: qbull.App) -> None:
    @app.queue("reports", retry=qbull.Retry(delays=(0,))).task
    async def render() -> None:
        job = qbull.current_job()
        for n in range(3):
            await job.log(f"line {n}")
        if job.attempt == 1:
            raise ConnectionError

    job = await render.enqueue()
    async with app.worker():
        await job.result(timeout=10)

    lines = await job.logs()
    info = await job.info()
    assert info is not None
    assert [(line.attempt, line.text) for line in lines] == [
        (attempt, f"line {n}") for attempt in (1, 2) for n in range(3)
    ]
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert lines[0].at.utcoffset() == timedelta(0)
    assert lines[0].at >= info.created_at
    assert [line.text for line in await job.logs(last=2)] == ["line 1", "line 2"]


async def test_a_line_is_there_when_log_returns(app: qbull.App) -> None:
    seen: list[str] = []

    @app.queue("reports").task
    async def render() -> None:
        me = qbull.current_job()
        await me.log("begun")
        seen.extend(line.text for line in await app.job("reports", me.id).logs())

    job = await render.enqueue()
    async with app.worker():
        await job.result(timeout=10)

    assert seen == ["begun"]


async def test_logs_are_bounded_in_number_and_length(app: qbull.App) -> None:
    @app.queue("reports").task
    async def render() -> None:
        job = qbull.current_job()
        await asyncio.gather(*(job.log(f"line {n}") for n in range(3000)))
        await job.log("x" * 10_000)

    job = await render.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    lines = await job.logs()
    assert len(lines) == 1000
    assert [lines[0].text, lines[-2].text] == ["line 2001", "line 2999"]
    assert lines[-1].text == "x" * 2000


async def test_many_jobs_talk_at_a_time(app: qbull.App) -> None:
    @app.queue("reports", concurrency=50, partitions=2, order="key").task(key="{n}")
    async def render(n: int) -> None:
        job = qbull.current_job()
        for step in range(20):
            await job.log(f"{n} {step}")
            await job.progress(step)

    jobs = await render.enqueue_many([{"n": n % 30} for n in range(100)])
    async with app.worker() as worker:
        await worker.drain()

    for n, job in enumerate(jobs):
        info = await job.info()
        assert info is not None
        assert info.progress == 19
        assert [line.text for line in await job.logs()] == [f"{n % 30} {step}" for step in range(20)]


async def test_plain_functions_talk_without_await(app: qbull.App) -> None:
    @app.queue("reports", concurrency=4).task
    def render(n: int) -> None:
        job = qbull.current_job()
        for step in range(5):
            job.log_sync(f"{n} {step}")
            job.progress_sync(10 * step)

    jobs = await render.enqueue_many([{"n": n} for n in range(4)])
    async with app.worker() as worker:
        await worker.drain()

    for n, job in enumerate(jobs):
        info = await job.info()
        assert info is not None
        assert info.progress == 40
        assert [line.text for line in await job.logs()] == [f"{n} {step}" for step in range(5)]


async def test_a_plain_function_with_an_event_loop_of_its_own_may_await(app: qbull.App) -> None:
    @app.queue("reports").task
    def render() -> None:
        async def inside() -> None:
            await qbull.current_job().log("from inside")
            await qbull.current_job().progress(7)

        asyncio.run(inside())

    job = await render.enqueue()
    async with app.worker():
        await job.result(timeout=10)

    info = await job.info()
    assert info is not None
    assert info.progress == 7
    assert [line.text for line in await job.logs()] == ["from inside"]


async def test_log_sync_does_not_block_an_event_loop(app: qbull.App) -> None:
    @app.queue("reports", retry=qbull.Retry(attempts=1)).task
    async def render() -> None:
        qbull.current_job().log_sync("…")

    job = await render.enqueue()
    async with app.worker():
        with pytest.raises(
            qbull.JobFailed, match=r"would block the running event loop; await log\(\) instead"
        ):
            await job.result(timeout=10)


async def test_a_function_that_nobody_waits_for_any_more_may_go_on_talking(app: qbull.App) -> None:
    ended = threading.Event()

    @app.queue("reports", retry=qbull.Retry(attempts=1)).task(timeout=0.05)
    def render() -> None:
        job = qbull.current_job()
        while not job.cancelled:
            threading.Event().wait(0.01)
        job.log_sync("too late")
        job.progress_sync(99)
        ended.set()

    job = await render.enqueue()
    async with app.worker() as worker:
        await worker.drain()
        assert await asyncio.to_thread(ended.wait, 10)

    assert await job.logs() == []


async def test_what_a_job_said_goes_with_it(app: qbull.App, store: Store) -> None:
    @app.queue("reports", keep=qbull.Keep(completed=1)).task
    async def render() -> None:
        await qbull.current_job().log("here")
        await qbull.current_job().progress(5)

    first, second, third = [await render.enqueue() for _ in range(3)]
    async with app.worker() as worker:
        await worker.drain()
    kept = [job for job in (first, second, third) if await job.state() is not None]
    for job in kept:
        await job.remove()

    left = [name for name in await store.server.call("KEYS", "*") if b"}:job:" in name or b"}:log:" in name]
    assert len(kept) == 1
    assert left == []
    with pytest.raises(qbull.NotFound):
        await first.logs()


async def test_a_redriven_job_keeps_its_lines_and_begins_without_progress(app: qbull.App) -> None:
    @app.queue("reports").task
    async def render() -> None:
        await qbull.current_job().progress(60)
        await qbull.current_job().log("tried")
        raise qbull.Fail("no")

    job = await render.enqueue()
    async with app.worker() as worker:
        await worker.drain()

    await job.retry()

    info = await job.info()
    assert info is not None
    assert (info.state, info.progress) == ("waiting", None)
    assert [line.text for line in await job.logs()] == ["tried"]


async def _progress_is(job: qbull.Job[None], value: float) -> bool:
    info = await job.info()
    return info is not None and info.progress == value


async def _calls_of(store: Store, command: str) -> int:
    info = (await store.server.call("INFO", "commandstats")).decode()
    [line] = [line for line in info.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(line.partition("calls=")[2].partition(",")[0])


async def test_a_log_line_has_a_level(app: qbull.App) -> None:
    queue = app.queue("reports", retry=qbull.Retry(attempts=1))

    @queue.task
    async def render() -> None:
        await qbull.current_job().log("done")
        await qbull.current_job().log("two fonts were replaced", level="warning")

    @queue.task
    def plain() -> None:
        qbull.current_job().log_sync("cannot read it", level="error")

    @queue.task
    async def loud() -> None:
        await qbull.current_job().log("x", level="loud")  # type: ignore[arg-type]

    jobs = [await render.enqueue(), await plain.enqueue(), await loud.enqueue()]
    async with app.worker() as worker:
        await worker.drain()

    lines = [(line.text, line.level) for job in jobs for line in await job.logs()]
    assert lines == [("done", "info"), ("two fonts were replaced", "warning"), ("cannot read it", "error")]
    refused = await jobs[2].info()
    assert refused is not None
    assert 'use "debug", "info", "warning" or "error"' in (refused.error or "")
