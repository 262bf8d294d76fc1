"""continue_as: a durable job starts over in its place, with its id, other arguments and an empty history."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NoReturn

import pytest
from partition_driver import CRASHED, PartitionDriver

import qbull
from conftest import eventually
from qbull import testing
from qbull.core.outcome import ContinuedAs
from qbull.core.record import body_of
from qbull.store.store import Store
from qbull.store.verbs.history import read_job_data
from qbull.store.verbs.outcomes import PartitionOutcomes


async def is_suspended(job: qbull.Job[Any]) -> bool:
    info = await job.info()
    return info is not None and info.suspended is not None


async def test_a_job_starts_anew_with_its_id_and_an_empty_history(app: qbull.App) -> None:
    calls: Counter[int] = Counter()
    ids: set[str] = set()

    async def import_page(page: int) -> int:
        calls[page] += 1
        return page + 1

    @app.queue("pages").task(durable=True)
    async def import_from(page: int, *, last: int) -> str:
        job = qbull.current_job()
        ids.add(job.id)
        following = await job.step(import_page, page)
        if following <= last:
            job.continue_as(following, last=last)
        return f"imported up to {page}"

    job = await import_from.enqueue(1, last=5)
    async with app.worker():
        assert await job.result(timeout=20) == "imported up to 5"

    info = await job.info()
    assert info is not None
    assert (info.continued, info.attempt, info.payload) == (4, 1, {"page": 5, "last": 5})
    assert calls == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
    assert ids == {job.id}
    assert [step.name for step in await job.steps()] == ["import_page"]


async def test_attempts_count_from_one_again_and_failures_before_do_not_count(app: qbull.App) -> None:
    attempts: list[tuple[int, int]] = []

    @app.queue("pages", retry=qbull.Retry(attempts=2, delay=0)).task(durable=True)
    async def work(turn: int) -> str:
        job = qbull.current_job()
        attempts.append((turn, job.attempt))
        if job.attempt == 1:
            raise ConnectionError
        if turn < 3:
            job.continue_as(turn + 1)
        return "done"

    job = await work.enqueue(1)
    async with app.worker():
        assert await job.result(timeout=20) == "done"

    assert attempts == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    info = await job.info()
    assert info is not None and len(info.history) == 1


async def test_signals_that_wait_and_published_values_carry_over(app: qbull.App) -> None:
    @app.queue("pages").task(durable=True)
    async def gather(got: list[int]) -> list[int]:
        job = qbull.current_job()
        number = await job.wait_for("number", type=int)
        await job.publish("got", [*got, number])
        if number < 4:
            job.continue_as([*got, number])
        return [*got, number]

    job = await gather.enqueue([])
    for number in (1, 2, 3):
        await job.signal("number", number)
    async with app.worker():
        await eventually(lambda: is_suspended(job))
        assert await job.published("got") == [1, 2, 3]
        await job.signal("number", 4)
        assert await job.result(timeout=20) == [1, 2, 3, 4]


async def test_values_that_are_emitted_anew_are_not_taken_for_repetitions(app: qbull.App) -> None:
    @app.queue("pages").task(durable=True)
    async def work(turn: int) -> None:
        job = qbull.current_job()
        await job.emit("started")
        if turn < 3:
            job.continue_as(turn + 1)

    job = await work.enqueue(1)
    async with app.worker():
        await job.result(timeout=20)

    assert [value async for value in job.stream()] == ["started"] * 3


async def test_a_caller_waits_for_the_final_result(app: qbull.App) -> None:
    queue = app.queue("pages")

    @queue.task(durable=True)
    async def count(n: int) -> int:
        job = qbull.current_job()
        if n < 3:
            await job.sleep(0.05)
            job.continue_as(n + 1)
        return n

    @app.queue("callers").task(durable=True)
    async def caller() -> int:
        return await qbull.current_job().call(count.step(0))

    job = await caller.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == 3


async def test_an_ordered_lane_waits_for_the_job_that_starts_anew(app: qbull.App) -> None:
    order: list[str] = []
    queue = app.queue("pages", order="key", concurrency=4)

    @queue.task(durable=True, key="{customer}")
    async def first(customer: str, turn: int) -> None:
        order.append(f"first {turn}")
        if turn < 3:
            qbull.current_job().continue_as(customer, turn + 1)

    @queue.task(key="{customer}")
    async def second(customer: str) -> None:
        order.append("second")

    one, two = await first.enqueue("ada", 1), await second.enqueue("ada")
    async with app.worker():
        await one.result(timeout=20)
        await two.result(timeout=20)

    assert order == ["first 1", "first 2", "first 3", "second"]


async def test_arguments_that_do_not_fit_or_change_the_key_are_refused(app: qbull.App) -> None:
    refused: list[str] = []

    @app.queue("pages", order="key").task(durable=True, key="{customer}")
    async def work(customer: str) -> str:
        job = qbull.current_job()
        for call in (lambda: job.continue_as("bob"), lambda: job.continue_as(), lambda: job.continue_as(7)):
            with pytest.raises(qbull.ArgumentsError) as error:
                call()
            refused.append(str(error.value))
        return "done"

    job = await work.enqueue("ada")
    async with app.worker():
        assert await job.result(timeout=20) == "done"

    assert 'would change the key from "ada" to "bob"' in refused[0]
    assert len(refused) == 3


async def test_plain_tasks_and_task_groups_start_anew(app: qbull.App) -> None:
    queue = app.queue("pages")

    @queue.task(durable=True)
    def plain(n: int) -> int:
        job = qbull.current_job()
        if n < 3:
            job.continue_as(n + 1)
        return n

    @queue.task(durable=True)
    async def grouped(n: int) -> int:
        async def leave() -> NoReturn:
            qbull.current_job().continue_as(n + 1)

        if n < 3:
            async with asyncio.TaskGroup() as group:
                group.create_task(leave())
        return n

    @queue.task(durable=True)
    async def careless(n: int) -> int:
        try:
            if n < 3:
                qbull.current_job().continue_as(n + 1)
        except BaseException:
            return -1
        return n

    jobs = [await task.enqueue(1) for task in (plain, grouped, careless)]
    async with app.worker():
        assert [await job.result(timeout=20) for job in jobs] == [3, 3, 3]


async def test_a_run_that_dies_before_it_starts_anew_continues_once(app: qbull.App, store: Store) -> None:
    """The outcome is refused if the job has been given to another worker, and no history is lost."""
    driver = await PartitionDriver.open(store)
    await driver.enqueue("job")
    (lost,) = await driver.fetch("dead")
    await driver.partition.reclaim("dead", CRASHED, [])
    (delivery,) = await driver.fetch("alive")
    job, late = delivery.job(0), lost.job(0)
    base = driver.partition.base
    await store.server.call("HSET", f"{base}job:job", "step:1", "kept", "signal:1", "s", "published:a", "p")
    await store.server.call("SADD", f"{base}extras", "job")

    def anew(delivered: Any) -> PartitionOutcomes:
        outcomes, body = PartitionOutcomes(), body_of(delivered.record)
        outcomes.start_anew(
            delivered.position, delivered.id, ContinuedAs(b"[]").record(delivered.record, body)
        )
        return outcomes

    assert await driver.partition.settle(anew(late)) == [b"job"]
    assert b"step:1" in await read_job_data(driver.partition, "job")
    assert await driver.partition.settle(anew(job)) == []
    # The same call again, because its reply was lost.
    assert await driver.partition.settle(anew(job)) == [b"job"]
    assert set(await read_job_data(driver.partition, "job")) == {b"signal:1", b"published:a"}

    (following,) = await driver.fetch("alive")
    body = body_of(following.job(0).record)
    assert (body.payload, body.continued) == (b"[]", 1)
    await driver.finish(following)


async def test_a_cancelled_job_does_not_start_anew(app: qbull.App) -> None:
    started = asyncio.Event()
    turns: list[int] = []

    @app.queue("pages").task(durable=True)
    async def work(turn: int) -> None:
        turns.append(turn)
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            qbull.current_job().continue_as(turn + 1)

    job = await work.enqueue(1)
    async with app.worker():
        await started.wait()
        await job.cancel("enough")
        with pytest.raises(qbull.JobCancelled, match="enough"):
            await job.result(timeout=20)

    assert turns == [1]


async def test_the_code_must_ask_for_its_history_before_it_starts_anew(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def note() -> None: ...

    @app.queue("pages", retry=qbull.Retry(attempts=2, delay=0)).task(durable=True)
    async def work(turn: int) -> None:
        job = qbull.current_job()
        calls["run"] += 1
        if calls["run"] == 1:
            await job.step(note)
            raise ConnectionError
        job.continue_as(turn + 1)

    job = await work.enqueue(1)
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="HistoryMismatch"):
            await job.result(timeout=20)

    assert calls["run"] == 2


async def test_a_full_history_names_continue_as(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def note(n: int) -> None: ...

    @app.queue("pages").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        for n in range(4):
            await job.step(note, n)

    monkeypatch.setattr("qbull.worker.recorded_run.MAX_STEPS", 3)
    job = await work.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=r"at most 3 steps; .*continue_as\(\)"):
            await job.result(timeout=20)


async def test_arguments_of_the_new_start_are_encrypted(server_url: str, store: Store) -> None:
    encrypted = qbull.Encrypted([qbull.Encrypted.new_key()])
    async with qbull.App(server_url, prefix="test", middleware=[encrypted]) as app:
        queue = app.queue("pages")

        @queue.task(durable=True)
        async def work(secret: str) -> str:
            job = qbull.current_job()
            if secret == "first":
                job.continue_as("very secret")
            await job.wait_for("go")
            return secret

        job = await work.enqueue("first")
        async with app.worker():
            await eventually(lambda: is_suspended(job))
            [partition] = await store.partitions(queue.settings)
            stored = await store.server.call("HGET", f"{partition.base}index", job.id)
            assert b"very secret" not in stored
            await job.signal("go")
            assert await job.result(timeout=20) == "very secret"


@pytest.mark.parametrize("is_async", [True, False])
async def test_jobs_start_anew_inline(is_async: bool) -> None:
    app = qbull.App("redis://127.0.0.1:1")
    queue = app.queue("pages")

    async def load(page: int) -> None: ...

    if is_async:

        @queue.task(name="work", durable=True)
        async def work(page: int) -> int:
            job = qbull.current_job()
            await job.step(load, page)
            if page < 2_000:
                job.continue_as(page + 1)
            await job.sleep(hours=1)
            if page < 2_002:
                job.continue_as(page + 1)
            return page
    else:

        @queue.task(name="work", durable=True)
        def work(page: int) -> int:
            job = qbull.current_job()
            if page < 2_000:
                job.continue_as(page + 1)
            job.sleep_sync(hours=1)
            if page < 2_002:
                job.continue_as(page + 1)
            return page

    with testing.inline(app) as jobs:
        job = await work.enqueue(1)
        await jobs.advance(3 * 3600)
        assert await job.result() == 2_002
        info = await job.info()
        assert info is not None and info.continued == 2_001
