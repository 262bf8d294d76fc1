"""What a type checker knows of qbull. Checked by `mypy --strict`; never run.

Every wrong call carries the error that it must give. Should one become acceptable, its comment is not needed any
more, and the check fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal, assert_type

import qbull
from qbull import testing

app = qbull.App()
queue = app.queue("email")


@queue.task
async def verify(user_id: str, retries: int = 3, *, urgent: bool = False) -> str:
    return user_id


@queue.task
def render(order_id: int) -> bytes:
    return b""


@queue.task(name="notify", id="notify:{user_id}", key="{user_id}", retry=qbull.Retry(attempts=3), timeout=5)
async def notify(user_id: str) -> None: ...


@queue.task(cpu=True)
def factorise(n: int) -> list[int]:
    return []


async def tasks_are_still_the_functions_they_were() -> None:
    coroutine: Coroutine[Any, Any, str] = verify("u1")
    assert_type(await coroutine, str)
    assert_type(await verify("u1", urgent=True), str)
    assert_type(render(1), bytes)
    assert_type(factorise(1), list[int])
    await verify(1)  # type: ignore[arg-type]
    render()  # type: ignore[call-arg]


async def a_step_knows_the_type_of_its_result() -> None:
    job = qbull.current_job()
    assert_type(await job.step(verify, "u1", urgent=True), str)
    assert_type(await job.step(notify, "u1"), None)
    assert_type(await job.step(render, order_id=1), bytes)
    assert_type(await job.options(timeout=3, name="check").step(verify, "u1"), str)
    assert_type(job.step_sync(render, 1), bytes)
    assert_type(await job.checkpoint(1), int)
    assert_type(job.checkpoint_sync("a", name="position"), str)
    await job.step(verify, 1)  # type: ignore[call-overload]
    await job.step(verify)  # type: ignore[call-overload]
    job.step_sync(render, "1")  # type: ignore[arg-type]


async def a_job_knows_the_type_of_its_result() -> None:
    assert_type(await verify.enqueue("u1"), qbull.Job[str])
    assert_type(await verify.enqueue(user_id="u1", retries=1, urgent=True), qbull.Job[str])
    assert_type(await (await verify.enqueue("u1")).result(timeout=10), str)
    assert_type(await render.enqueue(order_id=1), qbull.Job[bytes])
    assert_type(await (await render.enqueue(1)).result(), bytes)
    assert_type(await notify.enqueue("u1"), qbull.Job[None])
    assert_type(await factorise.enqueue(12), qbull.Job[list[int]])
    assert_type(await verify.enqueue_many([{"user_id": "u1"}]), list[qbull.Job[str]])
    assert_type(render.enqueue_sync(1), qbull.Job[bytes])
    assert_type(app.job("email", "id"), qbull.Job[Any])
    assert_type(queue.job("id"), qbull.Job[Any])


async def options_keep_the_signature() -> None:
    assert_type(await verify.options(delay=60, priority=1, key="k").enqueue("u1"), qbull.Job[str])
    assert_type(render.options(id="x").enqueue_sync(1), qbull.Job[bytes])
    await verify.options(delay=60).enqueue(7)  # type: ignore[arg-type]
    await verify.options(delay=60).enqueue()  # type: ignore[call-arg]
    verify.options(60)  # type: ignore[call-arg]
    verify.options(delay="soon")  # type: ignore[arg-type]
    verify.options(at="tomorrow")  # type: ignore[arg-type]
    verify.options(colour="red")  # type: ignore[call-arg]
    await verify.options(durability="strict").enqueue("u1")
    verify.options(durability="safe")  # type: ignore[arg-type]
    qbull.App(durability="safe")  # type: ignore[arg-type]


async def a_wrong_call_is_an_error() -> None:
    await verify.enqueue()  # type: ignore[call-arg]
    await verify.enqueue(1)  # type: ignore[arg-type]
    await verify.enqueue("u1", "three")  # type: ignore[arg-type]
    await verify.enqueue("u1", 3, True)  # type: ignore[call-arg]
    await verify.enqueue("u1", colour="red")  # type: ignore[call-arg]
    await verify.enqueue("u1", user_id="u1")  # type: ignore[misc]
    await render.enqueue("one")  # type: ignore[arg-type]
    await notify.enqueue()  # type: ignore[call-arg]
    render.enqueue_sync(order_id="one")  # type: ignore[arg-type]
    await verify.enqueue_many([7])  # type: ignore[list-item]


async def what_can_be_asked() -> None:
    job = await verify.enqueue("u1")
    assert_type(job.id, str)
    assert_type(job.created, bool)
    assert_type(
        await job.state(),
        Literal["waiting", "delayed", "active", "completed", "failed", "cancelled"] | None,
    )
    assert_type(await job.info(), qbull.JobInfo | None)
    assert_type(await queue.jobs("failed"), list[qbull.JobInfo])
    assert_type((await queue.stats()).waiting, int)
    assert_type((await queue.stats()).total, int)
    await queue.jobs("finished")  # type: ignore[arg-type]
    info = await job.info()
    info.state  # type: ignore[union-attr]  # noqa: B018
    assert_type(await job.result(), int)  # type: ignore[assert-type]


async def what_can_be_done() -> None:
    job = await verify.enqueue("u1")
    assert_type(await job.cancel(reason="sent by hand"), Literal["cancelled", "cancelling"])
    assert_type(await job.retry(payload={"user_id": "u2"}), Literal["waiting"])
    assert_type(await job.promote(), Literal["waiting"])
    assert_type(await job.reschedule(delay=60), Literal["waiting", "delayed"])
    assert_type(await job.update({"user_id": "u2"}), Literal["waiting", "delayed"])
    await job.reschedule(60)  # type: ignore[call-arg]
    assert_type(await job.remove(), Literal["removed"])
    assert_type(await job.logs(), list[qbull.LogLine])
    assert_type(await queue.redrive(limit=10, task="verify", rate=5), int)
    assert_type(await queue.clean("failed", older_than=3600, error_contains="card"), int)
    assert_type(await queue.cancel("delayed", task="verify", reason="late"), int)
    assert_type(await queue.purge(key="k"), int)
    assert_type(await queue.failures(), list[qbull.FailureGroup])
    assert_type((await queue.search("failed", task="verify")).next, str | None)
    await queue.redrive(colour="red")  # type: ignore[call-arg]
    await queue.search(after="yesterday")  # type: ignore[arg-type]
    app_with_results = qbull.App(results=qbull.FileResults("results"))
    assert_type(app_with_results.results, qbull.ResultStore | None)
    qbull.App(results="results")  # type: ignore[arg-type]


async def what_a_task_can_say() -> None:
    current = qbull.current_job()
    assert_type(await current.progress(33), None)
    assert_type(await current.log("half"), None)
    assert_type(current.progress_sync(33.3), None)
    assert_type(current.log_sync("half"), None)
    assert_type(current.cancelled, bool)
    await current.progress("half")  # type: ignore[arg-type]


async def what_a_task_can_ask() -> None:
    current = qbull.current_job()
    assert_type(current.attempt, int)
    assert_type(current.fence, int)
    assert_type(current.key, str | None)


def declarations_are_checked() -> None:
    app.queue("a", order="key", on_failed="halt", lane=qbull.Lane(limit=1), keep=qbull.Keep(completed=1))
    app.queue("b", order="fifo")  # type: ignore[arg-type]
    app.queue("c", on_failed="stop")  # type: ignore[arg-type]
    app.queue("d", concurrency="many")  # type: ignore[arg-type]
    app.queue("e", retry=3)  # type: ignore[arg-type]
    qbull.Retry(backoff="linear")  # type: ignore[arg-type]
    queue.task(timeout="long")  # type: ignore[call-overload]


async def a_worker_is_a_context() -> None:
    async with app.worker(queues=["email"], concurrency=3) as worker:
        assert_type(await worker.drain(), None)
    async with app as same:
        assert_type(same, qbull.App)


@queue.cron("0 9 * * *", tz="Europe/Berlin", name="daily-report", catch_up="skip", overlap="skip")
async def daily_report() -> None: ...


@queue.cron(every=30, args={"order_id": 1})
@queue.task
def render_again(order_id: int) -> bytes:
    return b""


@queue.task(chunk=10, wait=0.5)
async def store(rows: list[int]) -> list[str]:
    return [str(row) for row in rows]


async def flows_and_chunks_are_typed() -> None:
    assert_type(await store.enqueue(1), qbull.Job[str])
    await store.enqueue("1")  # type: ignore[arg-type]
    assert_type(daily_report.step(), qbull.Step[None])
    daily_report.step(1)  # type: ignore[call-arg]
    qbull.chain(store.step(1), on_failed="ignore")  # type: ignore[arg-type]
    async for event in queue.events():
        assert_type(event, qbull.Event)


@app.lifespan
async def number() -> AsyncIterator[int]:
    yield 5


@app.lifespan(cpu=True)
def words() -> Iterator[dict[str, int]]:
    yield {}


@app.lifespan
@asynccontextmanager
async def text() -> AsyncIterator[str]:
    yield ""


def lifespans_know_the_type_of_their_value() -> None:
    assert_type(number, qbull.Lifespan[int])
    assert_type(number.value, int)
    assert_type(words.value, dict[str, int])
    assert_type(text.value, str)
    with number.override(6):
        pass
    number.override("six")  # type: ignore[arg-type]
    app.lifespan(5)  # type: ignore[call-overload]


async def schedules_are_typed() -> None:
    assert_type(await daily_report.enqueue(), qbull.Job[None])
    assert_type(render_again(1), bytes)
    queue.cron("0 9 * * *", catch_up="maybe")  # type: ignore[arg-type]
    assert_type(await app.schedules.list(), list[qbull.ScheduleInfo])
    await app.schedules.upsert("nightly", verify, cron="30 2 * * *", args={"user_id": "u1"})
    await app.schedules.upsert("nightly", 5, cron="30 2 * * *")  # type: ignore[arg-type]


async def steps_are_replaced_by_functions_of_the_same_type() -> None:
    async def charge(order: int) -> str:
        return ""

    async def other(order: int, currency: str) -> str:
        return ""

    with testing.replace_step(charge).returns("payment") as charged:
        assert_type(charged, testing.ReplacedStep)
    testing.replace_step(charge).runs(charge)
    testing.replace_step(charge).runs(lambda order: f"{order + 1}")
    testing.replace_step(charge).runs(other)  # type: ignore[arg-type]
    testing.replace_step(charge).returns(5)  # type: ignore[arg-type]
    testing.replace_step("charge").returns(5)
