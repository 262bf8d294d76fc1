"""Order: jobs of one key one after the other, over any number of workers, through retries.

`order="key"` makes one lane for each key, `order="partition"` one lane for each partition, `lane=Lane(limit=n)` lets
up to n jobs of a key run at a time. Jobs without a key are in no lane of `order="key"`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
import redis.asyncio

import qbull
from conftest import eventually
from qbull.store.store import Store


async def test_jobs_of_a_key_run_one_after_the_other_in_the_order_they_came(app: qbull.App) -> None:
    ran: dict[str, list[int]] = defaultdict(list)
    running: set[str] = set()

    @app.queue("chat", order="key", partitions=4, concurrency=5).task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        assert phone not in running
        running.add(phone)
        await asyncio.sleep(0)
        ran[phone].append(n)
        running.remove(phone)

    phones = [f"+{n}" for n in range(8)]
    for n in range(25):
        await asyncio.gather(*(answer.enqueue(phone, n) for phone in phones))
    async with app.worker() as one, app.worker() as two, app.worker() as three:
        await asyncio.gather(one.drain(), two.drain(), three.drain())

    assert ran == {phone: list(range(25)) for phone in phones}


async def test_a_key_with_many_jobs_does_not_keep_a_worker_from_the_others(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "qbull.worker.attempt.MAX_TRAIN_SECONDS", 0.0
    )  # as if each job took longer than a turn
    ran: list[str] = []

    @app.queue("chat", order="key", concurrency=1).task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append(phone)

    await answer.enqueue_many([{"phone": "busy", "n": n} for n in range(100)])
    await answer.enqueue_many([{"phone": f"+{n}", "n": n} for n in range(3)])
    async with app.worker() as worker:
        await worker.drain()

    assert len(ran) == 103
    assert max(ran.index(f"+{n}") for n in range(3)) < 10


async def test_calls_that_are_made_at_once_keep_their_order(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append(n)

    await asyncio.gather(*(answer.enqueue("+1", n) for n in range(300)))
    async with app.worker() as worker:
        await worker.drain()

    assert ran == list(range(300))


async def test_a_job_that_took_its_time_is_written_down_before_the_next_of_its_key_begins(
    app: qbull.App, server_url: str
) -> None:
    """Otherwise, should its worker be killed now, it would run again after the next one had run."""
    before: list[str] = []

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        before.extend([await job.state() for job in jobs[max(n - 1, 0) : n]])
        await asyncio.sleep(0.003)
        await server.execute_command("CLIENT", "PAUSE", 50, "WRITE")

    jobs = await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(4)])
    async with redis.asyncio.from_url(server_url) as server, app.worker() as worker:
        await worker.drain()

    assert before == ["completed"] * 3


async def test_a_worker_that_lost_a_train_does_not_go_on_with_it(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("chat", order="key", concurrency=1).task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append(n)
        if ran == [0, 1]:
            store = Store(app.url, app.prefix)
            [partition] = await store.partitions(app.queues["chat"].settings)
            await partition.reclaim(worker.id, b"", [])
            await store.close()
        await asyncio.sleep(0.003)

    await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(4)])
    async with app.worker() as worker:
        await worker.drain()

    assert ran == [0, 1, 1, 2, 3]


async def test_order_survives_retries(app: qbull.App) -> None:
    ran: list[tuple[int, int]] = []

    @app.queue("chat", order="key", retry=qbull.Retry(delays=(0.01, 0.02))).task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        attempt = qbull.current_job().attempt
        ran.append((n, attempt))
        if n == 1 and attempt < 3:
            raise ConnectionError("away")

    await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(4)])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert ran == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]


async def test_a_key_that_waits_for_its_retry_holds_up_no_other_key(app: qbull.App) -> None:
    @app.queue("chat", order="key", retry=qbull.Retry(delays=(60,))).task(key="{phone}")
    async def answer(phone: str) -> str:
        if phone == "broken":
            raise ConnectionError("away")
        return "answered"

    retrying = await answer.enqueue("broken")
    behind = await answer.enqueue("broken")
    other = await answer.enqueue("fine")
    async with app.worker():
        assert await other.result(timeout=10) == "answered"

        async def delayed() -> bool:
            return await retrying.state() == "delayed"

        await eventually(delayed)
        assert await behind.state() == "waiting"


async def test_order_in_a_lane_comes_before_priority(app: qbull.App) -> None:
    ran: list[str] = []

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, text: str) -> None:
        ran.append(text)

    await answer.options(priority=10).enqueue("+1", "first")
    await answer.options(priority=5).enqueue("+1", "second")
    await answer.options(priority=1).enqueue("+1", "third")
    async with app.worker() as worker:
        await worker.drain()

    assert ran == ["first", "second", "third"]


async def test_after_a_dead_letter_the_lane_goes_on(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        ran.append(n)
        if n == 1:
            raise qbull.Fail("cannot be answered")

    await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(4)])
    async with app.worker() as worker:
        await worker.drain()

    assert ran == [0, 1, 2, 3]


async def test_with_halt_the_lane_stops_at_a_dead_letter_and_others_go_on(app: qbull.App) -> None:
    ran: list[str] = []
    queue = app.queue("ledger", order="key", on_failed="halt")

    @queue.task(key="{account}")
    async def post(account: str, n: int) -> None:
        ran.append(f"{account}{n}")
        if (account, n) == ("a", 1):
            raise qbull.Fail("does not balance")

    jobs = await post.enqueue_many([{"account": account, "n": n} for n in range(4) for account in ("a", "b")])
    async with app.worker():
        await jobs[-1].result(timeout=10)
        with pytest.raises(qbull.JobFailed, match="does not balance"):
            await jobs[2].result(timeout=10)
        after = await post.enqueue("b", 4)
        await after.result(timeout=10)

    assert [name for name in ran if name[0] == "a"] == ["a0", "a1"]
    assert [name for name in ran if name[0] == "b"] == ["b0", "b1", "b2", "b3", "b4"]
    assert [await jobs[at].state() for at in (0, 2, 4, 6)] == ["completed", "failed", "waiting", "waiting"]


async def test_a_halted_lane_takes_new_jobs_but_runs_none(app: qbull.App) -> None:
    queue = app.queue("ledger", order="key", on_failed="halt")

    @queue.task(key="{account}")
    async def post(account: str, fails: bool = False) -> None:
        if fails:
            raise qbull.Fail("does not balance")

    async with app.worker():
        broken = await post.enqueue("a", fails=True)
        with pytest.raises(qbull.JobFailed):
            await broken.result(timeout=10)
        later = await post.enqueue("a")
        await (await post.enqueue("b")).result(timeout=10)

    assert await later.state() == "waiting"


async def test_order_by_partition_runs_one_job_of_a_partition_at_a_time(app: qbull.App) -> None:
    ran: list[int] = []
    running = 0

    @app.queue("import", order="partition", concurrency=5).task
    async def load(n: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        ran.append(n)
        running -= 1

    await load.enqueue_many([{"n": n} for n in range(50)])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert ran == list(range(50))


async def test_partitions_are_in_order_each_for_itself(app: qbull.App) -> None:
    ran: dict[str, list[int]] = defaultdict(list)

    @app.queue("import", order="partition", partitions=4).task(key="{tenant}")
    async def load(tenant: str, n: int) -> None:
        await asyncio.sleep(0)
        ran[tenant].append(n)

    await load.enqueue_many([{"tenant": f"t{t}", "n": n} for n in range(10) for t in range(10)])
    async with app.worker() as worker:
        await worker.drain()

    assert ran == {f"t{t}": list(range(10)) for t in range(10)}


async def test_a_lane_with_a_limit_never_runs_more_of_a_key_at_a_time(app: qbull.App) -> None:
    running: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)

    @app.queue("export", lane=qbull.Lane(limit=2), concurrency=10).task(key="{tenant}")
    async def export(tenant: str) -> None:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
        await asyncio.sleep(0.005)
        running[tenant] -= 1

    await export.enqueue_many([{"tenant": tenant} for _ in range(15) for tenant in ("a", "b", "c")])
    async with app.worker() as one, app.worker() as two:
        await asyncio.gather(one.drain(), two.drain())

    assert most == {"a": 2, "b": 2, "c": 2}


async def test_a_busy_key_leaves_room_for_the_others(app: qbull.App) -> None:
    let_go = asyncio.Event()

    @app.queue("export", lane=qbull.Lane(limit=2), concurrency=3).task(key="{tenant}")
    async def export(tenant: str) -> str:
        if tenant == "greedy":
            await let_go.wait()
        return tenant

    await export.enqueue_many([{"tenant": "greedy"} for _ in range(20)])
    modest = await export.enqueue("modest")
    async with app.worker() as worker:
        assert await modest.result(timeout=10) == "modest"

        let_go.set()
        await worker.drain()


async def test_jobs_without_a_key_are_in_no_lane(app: qbull.App) -> None:
    both = asyncio.Barrier(2)

    @app.queue("chat", order="key", concurrency=2).task
    async def meet() -> None:
        await both.wait()

    jobs = [await meet.enqueue(), await meet.enqueue()]
    async with app.worker():
        for job in jobs:
            await job.result(timeout=10)


async def test_a_program_that_declares_another_order_is_told(
    app: qbull.App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.queue("chat", order="key").task(key="{phone}")
    async def answer(phone: str) -> None: ...

    await answer.enqueue("+1")
    assert "declared here" not in caplog.text

    async with qbull.App(app.url, prefix=app.prefix) as other:

        @other.queue("chat").task(name="answer", key="{phone}")
        async def ask(phone: str) -> None: ...

        await ask.enqueue("+1")

    assert 'queue "chat": declared here with order=None' in caplog.text
