"""Sleeps of durable tasks: the job leaves its worker, keeps its place, and continues when its time has come."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from conftest import eventually
from qbull import testing


async def code_of(job: qbull.Job[object]) -> str:
    return (await job.why()).reasons[0].code


async def is_asleep(job: qbull.Job[object]) -> bool:
    return await code_of(job) == "sleeping"


async def test_a_sleeping_job_holds_no_slot_and_uses_no_attempt(app: qbull.App) -> None:
    calls: Counter[str] = Counter()
    orders = app.queue("orders", concurrency=1, max_active=1)

    async def note(name: str) -> None:
        calls[name] += 1

    @orders.task(durable=True)
    async def remind() -> int:
        job = qbull.current_job()
        await job.step(note, "before")
        await job.sleep(hours=24)
        await job.step(note, "after")
        return job.attempt

    @orders.task
    async def other() -> str:
        return "ran"

    job = await remind.enqueue()
    async with app.worker():
        await eventually(lambda: is_asleep(job))
        assert await (await other.enqueue()).result(timeout=20) == "ran"
        info = await job.info()
        assert info is not None and info.due_at is not None
        assert (info.state, info.suspended, info.attempt) == ("delayed", "sleeping", 1)
        assert info.due_at - info.created_at > timedelta(hours=23)
        assert [step.state for step in await job.steps()] == ["completed", "sleeping"]
        assert await job.promote() == "waiting"
        assert await job.result(timeout=20) == 1

    assert calls == {"before": 1, "after": 1}
    assert [(step.name, step.state) for step in await job.steps()] == [
        ("note", "completed"),
        ("sleep", "completed"),
        ("note", "completed"),
    ]


async def test_a_sleep_ends_at_its_time_in_any_worker(app: qbull.App) -> None:
    until = datetime.now(UTC) + timedelta(seconds=1)

    @app.queue("orders").task(durable=True)
    async def wait() -> str:
        job = qbull.current_job()
        await job.sleep(hours=1)
        await job.sleep(until=until)
        return datetime.now(UTC).isoformat()

    job = await wait.enqueue()
    async with app.worker():
        await eventually(lambda: is_asleep(job))
    await job.promote()
    async with app.worker():
        ended = datetime.fromisoformat(await job.result(timeout=20))

    assert ended >= until - timedelta(milliseconds=5)


async def test_a_sleeping_job_keeps_its_place_in_its_lane(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("orders", order="key").task(durable=True, key="{key}")
    async def work(key: str, number: int, sleeps: bool) -> None:
        job = qbull.current_job()
        if sleeps:
            await job.sleep(hours=1)
        ran.append(number)

    jobs = [await work.enqueue("a", n, n == 1) for n in range(4)]
    async with app.worker():
        await eventually(lambda: is_asleep(jobs[1]))
        assert await code_of(jobs[2]) == "behind"
        await jobs[1].promote()
        await jobs[3].result(timeout=20)

    assert ran == [0, 1, 2, 3]


async def test_others_of_its_lane_pass_a_job_that_lets_them(app: qbull.App) -> None:
    ran: list[int] = []

    @app.queue("orders", order="key").task(durable=True, key="{key}")
    async def work(key: str, number: int, sleeps: bool) -> None:
        job = qbull.current_job()
        if sleeps:
            await job.sleep(hours=1, hold_lane=False)
        ran.append(number)

    jobs = [await work.enqueue("a", n, n in (0, 2)) for n in range(5)]
    async with app.worker():
        await jobs[4].result(timeout=20)
        assert ran == [1, 3, 4]
        for job in (jobs[0], jobs[2]):
            await eventually(lambda job=job: is_asleep(job))
            await job.promote()
            await job.result(timeout=20)

    assert ran == [1, 3, 4, 0, 2]


async def test_a_sleeping_job_can_be_cancelled(app: qbull.App) -> None:
    @app.queue("orders", order="key").task(durable=True, key="a")
    async def work(sleeps: bool) -> str:
        if sleeps:
            await qbull.current_job().sleep(hours=1)
        return "ran"

    job, behind = await work.enqueue(True), await work.enqueue(False)
    async with app.worker():
        await eventually(lambda: is_asleep(job))
        assert await job.cancel() == "cancelled"
        with pytest.raises(qbull.JobCancelled):
            await job.result(timeout=20)
        assert await behind.result(timeout=20) == "ran"


async def test_a_sleeping_job_does_not_expire(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True, expires=0.5)
    async def work() -> str:
        await qbull.current_job().sleep(1)
        return "ran"

    async with app.worker():
        assert await (await work.enqueue()).result(timeout=20) == "ran"


async def test_steps_beside_a_sleep_end_before_the_job_leaves(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def slow() -> str:
        calls["slow"] += 1
        await asyncio.sleep(0.2)
        return "done"

    async def note() -> str:
        calls["note"] += 1
        return "noted"

    @app.queue("orders").task(durable=True)
    async def work() -> list[object]:
        job = qbull.current_job()

        async def later(seconds: float) -> str:
            await job.sleep(seconds)
            return await job.step(note)

        return list(await asyncio.gather(job.step(slow), later(0.05), later(0.6)))

    job = await work.enqueue()
    async with app.worker():
        assert await job.result(timeout=20) == ["done", "noted", "noted"]

    assert calls == {"slow": 1, "note": 2}


async def test_finally_blocks_run_and_their_steps_do_not(app: qbull.App) -> None:
    calls: Counter[str] = Counter()

    async def refund() -> None:
        calls["refund"] += 1

    @app.queue("orders").task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        try:
            await job.sleep(hours=1)
        except asyncio.CancelledError:
            calls["cancelled"] += 1
            await job.step(refund)
            raise
        except Exception:
            calls["caught"] += 1
        return "woken"

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: is_asleep(job))
        await job.promote()
        assert await job.result(timeout=20) == "woken"

    assert calls == {"cancelled": 1}


async def test_a_task_that_ignores_its_suspension_sleeps_nevertheless(app: qbull.App) -> None:
    runs: list[int] = []

    @app.queue("orders").task(durable=True)
    async def work() -> str:
        runs.append(1)
        try:
            await qbull.current_job().sleep(hours=1)
        except asyncio.CancelledError:
            return "too early"
        return "woken"

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: is_asleep(job))
        await job.promote()
        assert await job.result(timeout=20) == "woken"

    assert len(runs) == 2


async def test_plain_tasks_sleep_too(app: qbull.App) -> None:
    runs: list[int] = []

    @app.queue("orders", concurrency=1).task(durable=True)
    def work() -> str:
        runs.append(1)
        try:
            qbull.current_job().sleep_sync(hours=1)
        except Exception:
            return "caught"
        return "woken"

    job = await work.enqueue()
    async with app.worker():
        await eventually(lambda: is_asleep(job))
        await job.promote()
        assert await job.result(timeout=20) == "woken"

    assert len(runs) == 2


async def test_sleeps_are_inline_too_and_time_is_moved(app: qbull.App) -> None:
    @app.queue("orders").task(durable=True)
    async def work() -> str:
        job = qbull.current_job()
        await job.sleep(hours=24)
        await job.sleep(minutes=1)
        return "woken"

    with testing.inline(app) as jobs:
        job = await work.enqueue()
        await jobs.advance(86_399)
        assert await job.state() == "delayed"
        await jobs.advance(1)
        assert await job.state() == "delayed"
        await jobs.advance(60)
        assert await job.result(timeout=1) == "woken"


async def test_wrong_sleeps_are_refused(app: qbull.App) -> None:
    said: list[str] = []

    @app.queue("orders").task(durable=True)
    async def work() -> None:
        job = qbull.current_job()
        for wrong in (
            {"seconds": -1},
            {"seconds": 1, "until": datetime.now(UTC)},
            {"until": datetime.now()},
        ):
            with pytest.raises(qbull.ArgumentsError) as refused:
                await job.sleep(**wrong)  # type: ignore[arg-type]
            said.append(str(refused.value))

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=20)

    assert [text.partition(": ")[0] for text in said[:2]] == ["sleep", "sleep"]
    assert "it has no time zone" in said[2]
