"""Changing a job that waits: another time, other arguments, in every state before it runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from conftest import eventually
from qbull import testing


def reminders(app: qbull.App, **settings: object) -> tuple[qbull.Queue, qbull.Task[..., str]]:
    queue = app.queue("email", **settings)  # type: ignore[arg-type]

    @queue.task(key="{user}" if settings else None)
    async def remind(user: str, text: str = "Hello") -> str:
        return f"{text}, {user}"

    return queue, remind


async def due_in(job: qbull.Job[str]) -> float:
    info = await job.info()
    assert info is not None and info.due_at is not None
    return (info.due_at - datetime.now(UTC)).total_seconds()


async def test_a_delayed_job_gets_another_time(app: qbull.App) -> None:
    _, remind = reminders(app)
    job = await remind.options(delay=60).enqueue("ada")

    assert await job.reschedule(delay=7200) == "delayed"
    assert 7000 < await due_in(job) <= 7200
    assert await job.reschedule(at=datetime.now(UTC) + timedelta(days=1)) == "delayed"
    assert 86_000 < await due_in(job) <= 86_400
    assert await job.reschedule(delay=0) == "waiting"

    async with app.worker():
        assert await job.result(timeout=20) == "Hello, ada"


async def test_a_job_that_is_rescheduled_while_a_worker_waits_runs_at_its_new_time(app: qbull.App) -> None:
    _, remind = reminders(app)
    job = await remind.options(delay=3600).enqueue("ada")

    async with app.worker():
        await job.reschedule(delay=0.2)
        assert await job.result(timeout=20) == "Hello, ada"


async def test_a_waiting_job_gets_other_arguments(app: qbull.App) -> None:
    _, remind = reminders(app, order="key")
    first = await remind.enqueue("ada", "One")
    second = await remind.enqueue("ada", "Two")
    third = await remind.options(delay=60).enqueue("ada", "Three")

    assert await first.update({"user": "ada", "text": "Four"}) == "waiting"
    assert await second.update({"user": "ada"}) == "waiting"
    assert await third.update({"user": "ada", "text": "Six"}) == "delayed"

    await third.promote()
    async with app.worker():
        assert [await job.result(timeout=20) for job in (first, second, third)] == [
            "Four, ada",
            "Hello, ada",
            "Six, ada",
        ]


async def test_other_arguments_must_fit_the_task_and_keep_the_key(app: qbull.App) -> None:
    _, remind = reminders(app, order="key")
    job = await remind.enqueue("ada")

    with pytest.raises(qbull.ArgumentsError, match="missing a required argument: 'user'"):
        await job.update({"text": "Hi"})
    with pytest.raises(qbull.ArgumentsError, match='have the key "bob", the job has "ada"'):
        await job.update({"user": "bob"})
    with pytest.raises(qbull.ArgumentsError, match="give delay or at"):
        await job.reschedule()
    with pytest.raises(qbull.ArgumentsError, match="has no time zone"):
        await job.reschedule(at=datetime(2030, 1, 1))
    assert await job.state() == "waiting"


async def test_a_job_that_runs_or_has_ended_is_left_alone(app: qbull.App) -> None:
    queue = app.queue("email")
    running, go_on = asyncio.Event(), asyncio.Event()

    @queue.task
    async def send(to: str) -> None:
        running.set()
        await go_on.wait()

    job = await send.enqueue("ada")
    async with app.worker():
        await asyncio.wait_for(running.wait(), 20)
        with pytest.raises(qbull.Conflict, match="is running, so it cannot be changed") as refused:
            await job.update({"to": "bob"})
        assert refused.value.state == "active"
        with pytest.raises(qbull.Conflict, match="is running"):
            await job.reschedule(delay=60)
        go_on.set()
        await job.result(timeout=20)
    with pytest.raises(qbull.Conflict, match="has completed"):
        await job.reschedule(delay=60)
    with pytest.raises(qbull.Conflict, match="has completed"):
        await job.update({"to": "bob"})
    with pytest.raises(qbull.NotFound):
        await queue.job("nobody").update({"to": "bob"})
    with pytest.raises(qbull.NotFound):
        await queue.job("nobody").reschedule(delay=1)


async def test_either_the_change_or_the_run_wins(app: qbull.App) -> None:
    queue = app.queue("email", concurrency=10)
    ran: dict[str, str] = {}

    @queue.task
    async def send(text: str) -> None:
        ran[qbull.current_job().id] = text

    jobs = await send.enqueue_many([{"text": "old"} for _ in range(200)])
    changed: set[str] = set()

    async def change(job: qbull.Job[None]) -> None:
        try:
            await job.update({"text": "new"})
            changed.add(job.id)
        except qbull.Conflict:
            pass

    async with app.worker():
        await asyncio.gather(*(change(job) for job in reversed(jobs)))
        await eventually(lambda: all_ran(ran, 200), within=60)

    assert {id for id, text in ran.items() if text == "new"} == changed


async def all_ran(ran: dict[str, str], count: int) -> bool:
    return len(ran) == count


async def test_a_job_that_waits_for_its_flow_gets_arguments_and_no_time(app: qbull.App) -> None:
    _, remind = reminders(app)
    await qbull.chain(remind.step("ada"), remind.step("bob")).enqueue()
    [last] = await app.queues["email"].jobs("delayed")
    handle = app.job("email", last.id)

    with pytest.raises(qbull.Conflict, match="waits for other jobs of its flow"):
        await handle.reschedule(delay=60)
    assert await handle.update({"user": "bob", "text": "Bye"}) == "delayed"

    async with app.worker():
        assert await handle.result(timeout=20) == "Bye, bob"


async def test_an_id_of_a_cancelled_job_runs_again_by_a_retry(app: qbull.App) -> None:
    _, remind = reminders(app)
    first = await remind.options(id="remind:ada", delay=60).enqueue("ada")
    await first.cancel()

    again = await remind.options(id="remind:ada").enqueue("ada")
    assert not again.created
    assert await again.state() == "cancelled"
    await again.retry(payload={"user": "ada", "text": "Again"})

    async with app.worker():
        assert await again.result(timeout=20) == "Again, ada"


async def test_encrypted_arguments_are_changed_too(server_url: str, store: object) -> None:
    app = qbull.App(server_url, prefix="test", middleware=[qbull.Encrypted([qbull.Encrypted.new_key()])])
    _, remind = reminders(app)
    job = await remind.options(delay=60).enqueue("ada")

    await job.update({"user": "ada", "text": "Secret"})
    await job.promote()

    async with app, app.worker():
        assert await job.result(timeout=20) == "Secret, ada"


async def test_inline_changes_jobs_too() -> None:
    app = qbull.App("redis://127.0.0.1:1/0")
    _, remind = reminders(app)

    with testing.inline(app) as jobs:
        job = await remind.options(delay=60).enqueue("ada")
        await job.update({"user": "ada", "text": "Bye"})
        assert await job.reschedule(delay=600) == "delayed"
        await jobs.advance(100)
        assert await job.state() == "delayed"
        await jobs.advance(600)
        assert await job.result() == "Bye, ada"
