"""Options: what can be said of one enqueue besides its arguments.

`await task.options(delay=60, priority=1, …).enqueue(…)`. The task itself stays as it was declared.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import qbull


async def test_a_delayed_job_waits_for_its_time(app: qbull.App) -> None:
    @app.queue("email").task
    async def remind() -> None: ...

    job = await remind.options(delay=3600).enqueue()

    info = await job.info()
    assert info is not None
    assert info.state == "delayed"
    assert info.due_at is not None
    assert timedelta(0) <= info.due_at - info.created_at - timedelta(hours=1) <= timedelta(milliseconds=1)


async def test_a_delayed_job_runs_when_its_time_has_come(app: qbull.App) -> None:
    @app.queue("email").task
    async def remind() -> str:
        return "now"

    job = await remind.options(delay=0.1).enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == "now"

    info = await job.info()
    assert info is not None
    assert info.started_at is not None
    assert info.started_at - info.created_at >= timedelta(seconds=0.09)


async def test_a_job_may_be_meant_for_a_moment(app: qbull.App) -> None:
    @app.queue("email").task
    async def remind() -> None: ...

    noon_in_cordoba = datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=-3)))
    job = await remind.options(at=noon_in_cordoba).enqueue()

    info = await job.info()
    assert info is not None
    assert (info.state, info.due_at) == ("delayed", noon_in_cordoba)


async def test_a_moment_in_the_past_means_now(app: qbull.App) -> None:
    @app.queue("email").task
    async def remind() -> str:
        return "late, but here"

    job = await remind.options(at=datetime(2020, 1, 1, tzinfo=UTC)).enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == "late, but here"


async def test_jobs_run_by_priority_and_within_one_in_the_order_they_came(app: qbull.App) -> None:
    ran: list[str] = []

    @app.queue("email", concurrency=1).task
    async def send(name: str) -> None:
        ran.append(name)

    for priority in (5, 10, 1, 3):
        await send.options(priority=priority).enqueue(f"{priority}, first")
        await send.options(priority=priority).enqueue(f"{priority}, second")
    await send.enqueue("5, third")
    async with app.worker() as worker:
        await worker.drain()

    assert ran == [
        "1, first", "1, second", "3, first", "3, second", "5, first", "5, second", "5, third", "10, first", "10, second",
    ]  # fmt: skip


async def test_a_second_job_with_the_same_id_adds_nothing(app: qbull.App) -> None:
    queue = app.queue("email")

    @queue.task
    async def verify(user_id: str) -> str:
        return user_id

    first = await verify.options(id="verify-u1").enqueue("u1")
    second = await verify.options(id="verify-u1").enqueue("somebody else")

    assert (first.id, first.created) == ("verify-u1", True)
    assert (second.id, second.created) == ("verify-u1", False)
    assert (await queue.stats()).total == 1


async def test_an_id_can_be_a_template_over_the_arguments(app: qbull.App) -> None:
    @app.queue("email").task(id="email:verify:{user_id}")
    async def verify(user_id: str, token: str) -> None: ...

    first = await verify.enqueue(user_id="u1", token="a")
    again = await verify.enqueue(user_id="u1", token="b")
    other = await verify.enqueue(user_id="u2", token="c")

    assert [job.id for job in (first, again, other)] == [
        "email:verify:u1",
        "email:verify:u1",
        "email:verify:u2",
    ]
    assert [job.created for job in (first, again, other)] == [True, False, True]


async def test_an_id_is_taken_while_the_finished_job_is_kept(app: qbull.App) -> None:
    queue = app.queue("email", retry=qbull.Retry(attempts=1))

    @queue.task
    async def verify(fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "first"

    async with app.worker() as worker:
        done = await verify.options(id="done").enqueue(False)
        dead = await verify.options(id="dead").enqueue(True)
        await worker.drain()
        done_again = await verify.options(id="done").enqueue(False)
        dead_again = await verify.options(id="dead").enqueue(True)

    assert (await done.state(), await dead.state()) == ("completed", "failed")
    assert (done_again.created, dead_again.created) == (False, False)
    assert await done_again.result(timeout=10) == "first"


async def test_an_id_is_free_again_when_the_job_is_not_kept(app: qbull.App) -> None:
    @app.queue("email", keep=qbull.Keep(completed=0)).task
    async def verify() -> None: ...

    async with app.worker() as worker:
        await verify.options(id="once").enqueue()
        await worker.drain()
        again = await verify.options(id="once").enqueue()
        await worker.drain()

    assert again.created is True


async def test_an_id_is_taken_in_all_partitions_whatever_the_key(app: qbull.App) -> None:
    queue = app.queue("email", partitions=4)

    @queue.task
    async def verify() -> None: ...

    first = await verify.options(id="same", key="a").enqueue()
    second = await verify.options(id="same", key="user-2").enqueue()

    assert (first.created, second.created) == (True, False)
    assert (await queue.stats()).total == 1


async def test_a_key_is_carried_with_the_job(app: qbull.App) -> None:
    queue = app.queue("chat", partitions=8)

    @queue.task(key="{phone}")
    async def answer(phone: str) -> None: ...

    by_template = await (await answer.enqueue("+5435155")).info()
    by_option = await (await answer.options(key="+1").enqueue("+5435155")).info()

    assert by_template is not None
    assert by_option is not None
    assert (by_template.key, by_option.key) == ("+5435155", "+1")
    assert by_template.partition == 6


async def test_a_timeout_cancels_the_coroutine(app: qbull.App) -> None:
    cancelled = asyncio.Event()

    @app.queue("email", retry=qbull.Retry(attempts=1)).task
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = await hang.options(timeout=0.05).enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match=r"longer than its timeout of 0\.05 s"):
            await job.result(timeout=10)

    assert cancelled.is_set()


async def test_a_timed_out_attempt_is_tried_again_like_any_other(app: qbull.App) -> None:
    runs = 0

    @app.queue("email", timeout=0.05, retry=qbull.Retry(delays=(0,))).task
    async def slow_at_first() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()
        return runs

    job = await slow_at_first.enqueue()
    async with app.worker():
        assert await job.result(timeout=10) == 2


async def test_a_plain_function_goes_on_after_its_timeout_but_its_outcome_is_refused(app: qbull.App) -> None:
    go_on, ended = threading.Event(), threading.Event()

    @app.queue("email", retry=qbull.Retry(attempts=1)).task(timeout=0.05)
    def hang() -> str:
        go_on.wait(30)
        ended.set()
        return "too late"

    job = await hang.enqueue()
    async with app.worker():
        with pytest.raises(qbull.JobFailed, match="longer than its timeout"):
            await job.result(timeout=10)
        go_on.set()
        await asyncio.to_thread(ended.wait, 10)

    assert await job.state() == "failed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": datetime(2030, 1, 1)}, "has no time zone; use an aware datetime"),
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay and at: give one of them"),
        ({"delay": -1}, "delay=-1: must not be negative"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"delay": float("inf")}, "delay=inf"),
        ({"priority": 0}, "priority=0: give a whole number from 1"),
        ({"priority": 11}, "priority=11: give a whole number from 1"),
        ({"priority": 1.5}, "priority=1.5: give a whole number from 1"),
        ({"timeout": 0}, "timeout=0: must be more than 0 seconds"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"key": ""}, "key='': give a text that is not empty"),
        ({"key": "\ud800"}, "key="),
        ({"id": ""}, "job id '': use 1 to 200 printable characters"),
        ({"id": "x" * 201}, "use 1 to 200 printable characters"),
        ({"id": "two\nlines"}, "use 1 to 200 printable characters"),
    ],
)
async def test_a_wrong_option_is_refused_before_anything_is_sent(
    app: qbull.App, options: dict[str, Any], message: str
) -> None:
    queue = app.queue("email")

    @queue.task
    async def send() -> None: ...

    with pytest.raises(qbull.ArgumentsError, match=message):
        await send.options(**options).enqueue()

    assert (await queue.stats()).total == 0
