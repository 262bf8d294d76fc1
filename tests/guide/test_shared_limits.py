"""Shared limits: several queues and tasks under one limit, as docs/guides/shared_limits.md shows them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from limit_windows import heaviest_window

import qbull
from conftest import eventually


@pytest.mark.parametrize("workers", [1, 3])
async def test_queues_share_a_rate(app: qbull.App, workers: int) -> None:
    starts: list[tuple[float, int]] = []
    openai = qbull.Limit("openai", rate=qbull.Rate(30, per=1))
    chat, mail = app.queue("chat", partitions=3, limit=openai), app.queue("mail")

    @chat.task
    async def answer() -> None:
        starts.append((time.monotonic(), 1))

    @mail.task(limit=openai.use(weight="tokens"))
    def summarise(tokens: int) -> None:
        starts.append((time.monotonic(), tokens))

    await answer.enqueue_many([{}] * 40)
    await summarise.enqueue_many([{"tokens": 3}] * 15)
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            worker = await stack.enter_async_context(app.worker())
        await worker.drain()

    assert len(starts) == 55
    assert heaviest_window(1.0, starts) <= 30


async def test_queues_share_slots(app: qbull.App) -> None:
    running = most = 0
    scraper = qbull.Limit("scraper", concurrency=3)

    async def visit() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03)
        running -= 1

    one, two = (app.queue(name, concurrency=10).task(name="visit", limit=scraper)(visit) for name in "ab")
    await one.enqueue_many([{}] * 20)
    await two.enqueue_many([{}] * 20)
    async with app.worker() as first, app.worker():
        await first.drain()

    assert most == 3


async def test_jobs_of_other_tasks_go_on_while_a_limit_is_used_up(app: qbull.App) -> None:
    queue = app.queue("work", concurrency=1)
    done: list[str] = []

    @queue.task(limit=qbull.Limit("slow", rate=qbull.Rate(1, per=60)))
    async def limited(name: str) -> None:
        done.append(name)

    @queue.task
    async def free(name: str) -> None:
        done.append(name)

    async with app.worker():
        await limited.enqueue("first")
        stuck = [await limited.enqueue(f"stuck {n}") for n in range(20)]
        for name in ("a", "b"):
            await (await free.enqueue(name)).result(timeout=20)
        assert [await job.state() for job in stuck] == ["waiting"] * 20

    assert done == ["first", "a", "b"]


async def test_each_key_has_the_limit_for_itself(app: qbull.App) -> None:
    queue = app.queue("work")
    done: list[str] = []
    per_customer = qbull.Limit("customer", rate=qbull.Rate(2, per=60))

    @queue.task(limit=per_customer.use(key="{customer}"))
    async def call(customer: str) -> None:
        done.append(customer)

    async with app.worker():
        for customer in ("a", "b", "a", "a", "b", "b", "a"):
            await call.enqueue(customer)

        async def four_ran() -> bool:
            return len(done) == 4

        await eventually(four_ran)
        assert sorted(done) == ["a", "a", "b", "b"]


async def test_urgent_jobs_come_first_under_a_limit(app: qbull.App) -> None:
    queue = app.queue("work")
    done: list[str] = []

    @queue.task(limit=qbull.Limit("api", rate=qbull.Rate(5, per=0.5)))
    async def call(name: str) -> None:
        done.append(name)

    async with app.worker() as worker:
        await call.options(priority=9).enqueue_many([{"name": f"batch {n}"} for n in range(20)])

        async def five_ran() -> bool:
            return len(done) >= 5

        await eventually(five_ran)
        await call.options(priority=1).enqueue("interactive")
        await worker.drain()

    assert done.index("interactive") <= 11


async def test_a_job_uses_several_limits(app: qbull.App) -> None:
    queue = app.queue("work", concurrency=10)
    starts: list[tuple[float, int]] = []
    running = most = 0
    requests = qbull.Limit("requests", concurrency=2)
    tokens = qbull.Limit("tokens", rate=qbull.Rate(100, per=0.5))

    @queue.task(limit=[requests, tokens.use(weight=lambda text: len(text))])
    async def call(text: str) -> None:
        nonlocal running, most
        starts.append((time.monotonic(), len(text)))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await call.enqueue_many([{"text": "x" * 20}] * 15)
    async with app.worker() as worker:
        await worker.drain()

    assert (len(starts), most) == (15, 2)
    assert heaviest_window(0.5, starts) <= 100


async def test_a_task_corrects_its_weight(app: qbull.App) -> None:
    """Each job asks for 50 of 100 and uses 10. Ten of them fit into a window instead of two."""
    queue = app.queue("work", concurrency=1)
    tokens = qbull.Limit("tokens", rate=qbull.Rate(100, per=60))
    done = 0

    @queue.task(limit=tokens.use(weight=50))
    async def call() -> None:
        nonlocal done
        qbull.current_job().spent(10)
        done += 1

    await call.enqueue_many([{}] * 6)
    async with app.worker() as worker:
        async with asyncio.timeout(20):
            await worker.drain()

    assert done == 6


async def test_a_budget_lasts_a_day(app: qbull.App) -> None:
    queue = app.queue("work")
    done = 0

    @queue.task(limit=qbull.Limit("paid", daily=100).use(weight="cost"))
    def buy(cost: int) -> None:
        nonlocal done
        done += 1

    async with app.worker():
        jobs = [await buy.enqueue(30) for _ in range(5)]

        async def three_ran() -> bool:
            return done == 3 and [await job.state() for job in jobs].count("waiting") == 2

        await eventually(three_ran)


async def test_why_names_the_limit_that_a_job_waits_for(app: qbull.App) -> None:
    scraper = qbull.Limit("scraper", concurrency=1, daily=5)
    pages = app.queue("pages", limit=scraper.use(weight="pages"))
    hold = asyncio.Event()

    @pages.task
    async def visit(pages: int) -> None:
        await hold.wait()

    async def waits_for(job: qbull.Job[None], rule: str) -> bool:
        [reason, *_] = (await job.why()).reasons
        return reason.code == "shared-limit" and rule in reason.text

    async with app.worker():
        await visit.enqueue(pages=5)
        second = await visit.enqueue(pages=1)
        assert await eventually(lambda: waits_for(second, '"scraper" since'))
        assert await waits_for(second, "5 of 5 for today are spent")
        await app.limits.configure("scraper", daily=None)
        assert await eventually(lambda: waits_for(second, "1 of 1 slots are in use"))
        hold.set()
        await second.result(timeout=10)


async def test_one_app_declares_a_limit_once(app: qbull.App) -> None:
    queue = app.queue("work")

    @queue.task(limit=qbull.Limit("api", concurrency=2))
    async def one() -> None: ...

    with pytest.raises(qbull.ConfigError, match="declared as concurrency 2 and as concurrency 3"):

        @queue.task(limit=qbull.Limit("api", concurrency=3))
        async def two() -> None: ...


async def test_a_limit_tells_its_use_and_the_jobs_that_wait(app: qbull.App) -> None:
    queue = app.queue("work", limit=qbull.Limit("api", rate=qbull.Rate(2, per=60)))

    @queue.task
    async def call() -> None: ...

    async with app.worker():
        await call.enqueue_many([{}] * 5)

        async def three_wait() -> bool:
            limit = await app.limits.get("api")
            return (limit.used, limit.waiting, limit.queues) == (2, 3, {"work": 3})

        await eventually(three_wait)
    assert (await app.limits.get("api")).since is not None


async def test_a_call_gives_the_weight_of_its_job(app: qbull.App) -> None:
    queue = app.queue("work", concurrency=1)
    requests = qbull.Limit("requests", rate=qbull.Rate(100, per=600))
    tokens = qbull.Limit("tokens", rate=qbull.Rate(100, per=600))

    @queue.task(limit=[requests, tokens.use(weight=lambda text: len(text))])
    async def call(text: str) -> None: ...

    @queue.task(limit=requests)
    async def plain() -> None: ...

    async with app.worker() as worker:
        await call.options(weight=60).enqueue("x")
        await call.enqueue("four")
        await plain.options(weight=7).enqueue()
        await worker.drain()
        waits = await call.options(weight=50).enqueue("x")

        async def it_waits() -> bool:
            return (await app.limits.get("tokens")).waiting == 1

        async def used() -> bool:
            return ((await app.limits.get("requests")).used, (await app.limits.get("tokens")).used) == (9, 64)

        await eventually(it_waits)
        # A job that has to wait gives its start of the other limit back a moment later.
        await eventually(used)
        await waits.cancel()


@pytest.mark.parametrize("weight", [-1, 1.5, "3", True])
async def test_a_wrong_weight_is_refused_before_it_is_sent(app: qbull.App, weight: Any) -> None:
    @app.queue("work").task
    async def call() -> None: ...

    with pytest.raises(qbull.ArgumentsError, match="weight="):
        call.options(weight=weight)
