"""Rate limits: never more starts than allowed in any window, over all workers, and hardly fewer while there is work."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import AsyncExitStack

import pytest

import qbull
from conftest import eventually


def most_in_any(window: float, starts: list[float]) -> int:
    """The most starts in any window of so many seconds: each begins with a start."""
    starts = sorted(starts)
    most, end = 0, 0
    for begin, at in enumerate(starts):
        while end < len(starts) and starts[end] < at + window:
            end += 1
        most = max(most, end - begin)
    return most


@pytest.mark.parametrize("workers", [1, 4])
async def test_no_window_has_more_starts_than_the_limit(app: qbull.App, workers: int) -> None:
    starts: list[float] = []
    sms = app.queue("sms", rate=qbull.Rate(20, per=1), partitions=4, concurrency=10)

    @sms.task
    async def send() -> None:
        starts.append(time.monotonic())

    await send.enqueue_many([{}] * 70)
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            worker = await stack.enter_async_context(app.worker())
        await worker.drain()

    assert len(starts) == 70
    assert most_in_any(1.0, starts) <= 20
    assert starts[-1] - starts[0] < 2 * 3, "70 starts take three full windows; a busy machine may need longer"


async def test_a_burst_after_a_rest_goes_at_once(app: qbull.App) -> None:
    sms = app.queue("sms", rate=qbull.Rate(10, per=3600), concurrency=3)

    @sms.task
    async def send() -> None: ...

    jobs = await send.enqueue_many([{}] * 12)
    async with app.worker():
        for job in jobs[:10]:
            await job.result(timeout=10)

        stats = await sms.stats()
    assert (stats.completed, stats.waiting) == (10, 2)


async def test_a_worker_that_may_not_begin_holds_no_jobs(app: qbull.App) -> None:
    sms = app.queue("sms", rate=qbull.Rate(1, per=3600), concurrency=10)

    @sms.task
    async def send() -> None: ...

    async with app.worker():
        first, *others = [await send.enqueue() for _ in range(5)]
        await first.result(timeout=10)

        async def all_wait() -> bool:
            return [await job.state() for job in others] == ["waiting"] * 4

        await eventually(all_wait)


async def test_a_limit_keeps_the_order_of_a_key(app: qbull.App) -> None:
    ran: dict[str, list[int]] = defaultdict(list)
    starts: list[float] = []
    chat = app.queue("chat", order="key", rate=qbull.Rate(40, per=0.5), partitions=2)

    @chat.task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        starts.append(time.monotonic())
        ran[phone].append(n)

    await answer.enqueue_many([{"phone": f"+{k}", "n": n} for n in range(20) for k in range(6)])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert ran == {f"+{k}": list(range(20)) for k in range(6)}
    assert most_in_any(0.5, starts) <= 40


async def test_retries_count_as_starts(app: qbull.App) -> None:
    sms = app.queue(
        "sms", rate=qbull.Rate(3, per=3600), retry=qbull.Retry(attempts=5, backoff="fixed", delay=0)
    )
    begun = 0

    @sms.task
    async def send() -> None:
        nonlocal begun
        begun += 1
        raise ConnectionError("away")

    job = await send.enqueue()
    async with app.worker():

        async def waits() -> bool:
            return begun == 3 and await job.state() == "waiting"

        await eventually(waits)


async def test_a_rate_can_be_changed_while_everything_runs(app: qbull.App) -> None:
    sms = app.queue("sms", rate=qbull.Rate(1, per=3600))

    @sms.task
    async def send() -> None: ...

    jobs = await send.enqueue_many([{}] * 5)
    async with app.worker():
        await jobs[0].result(timeout=10)
        await sms.configure(rate=None)

        for job in jobs:
            await job.result(timeout=10)


async def test_a_limit_that_is_set_later_counts_at_once(app: qbull.App) -> None:
    sms = app.queue("sms", concurrency=5)

    @sms.task
    async def send() -> None: ...

    async with app.worker():
        await (await send.enqueue()).result(timeout=10)
        await sms.configure(rate=qbull.Rate(2, per=3600))
        jobs = await send.enqueue_many([{}] * 50)

        async def two_at_most_begin_after_all_have_followed() -> bool:
            stats = await sms.stats()
            return stats.active == 0 and stats.waiting > 0

        await eventually(two_at_most_begin_after_all_have_followed)
        assert await jobs[-1].state() == "waiting"


async def test_a_task_can_hold_its_whole_queue(app: qbull.App) -> None:
    begun: list[float] = []
    sms = app.queue("sms", concurrency=1)

    @sms.task
    async def send(n: int) -> int:
        begun.append(time.monotonic())
        if n == 0 and qbull.current_job().attempt == 1:
            raise qbull.RetryAfter(0.5, "too many requests", queue=True)
        return n

    jobs = [await send.enqueue(n) for n in range(3)]
    async with app.worker():
        assert [await job.result(timeout=10) for job in jobs] == [0, 1, 2]

    assert begun[1] - begun[0] >= 0.5


async def test_a_hold_is_over_when_somebody_resumes_the_queue(app: qbull.App) -> None:
    sms = app.queue("sms")

    @sms.task
    async def send(held: bool) -> str:
        if held:
            raise qbull.RetryAfter(3600, "too many requests", queue=True)
        return "sent"

    async with app.worker():
        await send.enqueue(True)

        async def held() -> bool:
            return (await sms.live()).held > 0

        await eventually(held)
        assert "too many requests" in (await sms.live()).held_because
        waiting = await send.enqueue(False)
        await sms.resume()

        assert await waiting.result(timeout=10) == "sent"


async def test_plain_functions_and_threads_are_counted_too(app: qbull.App) -> None:
    starts: list[float] = []
    sms = app.queue("sms", rate=qbull.Rate(10, per=0.5), concurrency=5)

    @sms.task
    def send() -> None:
        starts.append(time.monotonic())

    await send.enqueue_many([{}] * 25)
    async with app.worker() as worker:
        await worker.drain()

    assert (len(starts), most_in_any(0.5, starts) <= 10) == (25, True)


@pytest.mark.parametrize("limit", [1, 3])
async def test_each_key_has_a_rate_of_its_own(app: qbull.App, limit: int) -> None:
    starts: dict[str, list[float]] = defaultdict(list)
    crm = app.queue("crm", lane=qbull.Lane(limit=limit, rate=qbull.Rate(5, per=0.5)), concurrency=10)

    @crm.task(key="{tenant}")
    async def sync(tenant: str) -> None:
        starts[tenant].append(time.monotonic())

    await sync.enqueue_many([{"tenant": tenant} for _ in range(13) for tenant in ("a", "b", "c")])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert {tenant: len(times) for tenant, times in starts.items()} == {"a": 13, "b": 13, "c": 13}
    assert max(most_in_any(0.5, times) for times in starts.values()) <= 5


async def test_a_rate_for_each_key_keeps_the_order_and_counts_no_attempts(app: qbull.App) -> None:
    ran: list[tuple[int, int]] = []
    chat = app.queue("chat", order="key", lane=qbull.Lane(rate=qbull.Rate(6, per=0.5)))

    @chat.task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append((n, qbull.current_job().attempt))

    await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(20)])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert ran == [(n, 1) for n in range(20)]
    assert (await chat.stats()).totals.get("retried", 0) == 0


async def test_a_key_that_has_had_its_starts_holds_up_no_other(app: qbull.App) -> None:
    crm = app.queue("crm", lane=qbull.Lane(rate=qbull.Rate(1, per=3600)), concurrency=1)

    @crm.task(key="{tenant}")
    async def sync(tenant: str) -> str:
        return tenant

    first, second = [await sync.enqueue("busy") for _ in range(2)]
    async with app.worker():
        await first.result(timeout=10)

        async def put_off() -> bool:
            return await second.state() == "delayed"

        await eventually(put_off)
        assert await (await sync.enqueue("quiet")).result(timeout=10) == "quiet"


def test_a_wrong_rate_is_refused(app: qbull.App) -> None:
    with pytest.raises(qbull.ConfigError, match=r"Rate\(0, per=1.0\): give a whole number of starts"):
        qbull.Rate(0)
    with pytest.raises(qbull.ConfigError, match=r"Rate\(5, per=0\): give seconds from 0.1"):
        qbull.Rate(5, per=0)
    with pytest.raises(qbull.ConfigError, match=r'queue "sms": rate=5: give a rate'):
        app.queue("sms", rate=5)  # type: ignore[arg-type]
    with pytest.raises(qbull.ConfigError, match="Lane: rate=5: give a rate"):
        qbull.Lane(rate=5)  # type: ignore[arg-type]
