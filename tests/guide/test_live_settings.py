"""Live settings: what a queue was declared with, changed while everything runs."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

import qbull
from conftest import eventually


async def test_more_slots_are_opened_while_a_worker_runs(app: qbull.App) -> None:
    three = asyncio.Barrier(3)
    email = app.queue("email", concurrency=1)

    @email.task
    async def meet() -> None:
        await three.wait()

    jobs = await meet.enqueue_many([{}, {}, {}])
    async with app.worker():
        await email.configure(concurrency=3)

        for job in jobs:
            await job.result(timeout=10)


async def test_fewer_slots_are_left_when_their_jobs_have_ended(app: qbull.App) -> None:
    running = most = 0
    email = app.queue("email", concurrency=4)

    @email.task
    async def send() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def most_of_some() -> int:
        nonlocal most
        most = 0
        await send.enqueue_many([{}] * 20)
        await worker.drain()
        return most

    async def one_at_a_time() -> bool:
        return await most_of_some() == 1

    async with app.worker() as worker:
        assert await most_of_some() == 4
        await email.configure(concurrency=1)
        await eventually(one_at_a_time)

        assert await most_of_some() == 1


async def test_plain_functions_get_as_many_threads_as_there_are_slots(app: qbull.App) -> None:
    three = threading.Barrier(3)
    email = app.queue("email", concurrency=1)

    @email.task
    def meet() -> None:
        three.wait(10)

    jobs = await meet.enqueue_many([{}, {}, {}])
    async with app.worker():
        await email.configure(concurrency=3)

        for job in jobs:
            await job.result(timeout=20)


async def test_retries_can_be_stopped_for_all_tasks_of_a_queue(app: qbull.App) -> None:
    email = app.queue("email", retry=qbull.Retry(delays=(60,)))

    @email.task(retry=qbull.Retry(delays=(60, 60)))
    async def send() -> None:
        raise ConnectionError("away")

    await email.configure(retry=qbull.Retry(attempts=1))
    async with app.worker():
        job = await send.enqueue()

        with pytest.raises(qbull.JobFailed, match="away"):
            await job.result(timeout=10)


async def test_a_reset_gives_the_setting_back_to_the_code(app: qbull.App) -> None:
    email = app.queue("email", concurrency=4)
    await email.configure(concurrency=9, retry=qbull.Retry(attempts=2))

    await email.reset("concurrency")
    one = await email.live()
    await email.reset()
    none = await email.live()

    assert (one.settings.concurrency, one.settings.retry) == (4, qbull.Retry(attempts=2))
    assert (none.settings, none.changed) == (email.settings, {})


async def test_it_is_said_who_changed_what_and_when(app: qbull.App) -> None:
    email = app.queue("email", concurrency=4)

    await email.configure(concurrency=8, by="ada")
    await email.configure(concurrency=8, by="nobody: it is 8 already")
    await email.configure(concurrency=2, by="grace")
    await email.pause(by="ada")
    await email.reset("concurrency", by="linus")

    changes = await email.changes()
    assert [(c.by, c.setting, c.before, c.after) for c in reversed(changes)] == [
        ("ada", "concurrency", None, 8),
        ("grace", "concurrency", 8, 2),
        ("ada", "paused", None, True),
        ("linus", "concurrency", 2, None),
    ]
    assert all(abs(datetime.now(UTC) - change.at) < timedelta(minutes=1) for change in changes)
    live = await email.live()
    assert (live.paused, live.changed["paused"].by) == (True, "ada")


async def test_who_did_it_is_the_user_where_nobody_is_named(app: qbull.App) -> None:
    email = app.queue("email")

    await email.configure(concurrency=8)

    assert "@" in (await email.changes())[0].by


async def test_the_history_is_bounded(app: qbull.App) -> None:
    email = app.queue("email")

    for n in range(1, 121):
        await email.configure(concurrency=n)

    changes = await email.changes()
    assert (len(changes), changes[0].after, changes[-1].after) == (100, 120, 21)


async def test_a_wrong_value_is_refused_before_anything_is_sent(app: qbull.App) -> None:
    email = app.queue("email")

    with pytest.raises(qbull.ConfigError, match=r'queue "email": concurrency=0: give a whole number from 1'):
        await email.configure(concurrency=0)
    with pytest.raises(qbull.ConfigError, match=r"concurrency=5000: .*1,000"):
        await email.configure(concurrency=5000)
    with pytest.raises(qbull.ConfigError, match=r'"order" is no live setting; there are: concurrency'):
        await email.reset("order")
    with pytest.raises(qbull.ConfigError, match="by="):
        await email.configure(concurrency=2, by="two\nlines")

    assert await email.changes() == []


async def test_a_live_setting_is_in_force_for_workers_that_start_later(app: qbull.App) -> None:
    two = asyncio.Barrier(2)
    email = app.queue("email", concurrency=1)

    @email.task
    async def meet() -> None:
        await two.wait()

    await email.configure(concurrency=2)
    jobs = await meet.enqueue_many([{}, {}])
    async with app.worker():
        for job in jobs:
            await job.result(timeout=10)


async def test_a_live_timeout_replaces_those_of_queue_and_tasks(app: qbull.App) -> None:
    email = app.queue("email", retry=qbull.Retry(attempts=1))

    @email.task(timeout=3600)
    async def hang() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        await email.configure(timeout=0.05)
        first = await hang.enqueue()
        with pytest.raises(qbull.JobFailed, match=r"longer than its timeout of 0.05 s"):
            await first.result(timeout=20)
        by_call = await hang.options(timeout=0.2).enqueue()
        with pytest.raises(qbull.JobFailed, match=r"longer than its timeout of 0.2 s"):
            await by_call.result(timeout=20)


async def test_no_timeout_is_a_live_timeout_too(app: qbull.App) -> None:
    email = app.queue("email", retry=qbull.Retry(attempts=1))

    @email.task(timeout=0.05)
    async def nap() -> str:
        await asyncio.sleep(0.3)
        return "rested"

    await email.configure(timeout=None)
    async with app.worker():
        assert await (await nap.enqueue()).result(timeout=20) == "rested"
        await email.reset("timeout")

        async def times_out() -> bool:
            try:
                await (await nap.enqueue()).result(timeout=20)
            except qbull.JobFailed as error:
                return "longer than its timeout" in str(error)
            return False

        await eventually(times_out)


async def test_a_live_retention_by_count_and_by_age(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> None: ...

    async def completed() -> int:
        return (await email.stats()).completed

    async with app.worker() as worker:
        await send.enqueue_many([{}] * 20)
        await worker.drain()
        assert await completed() == 20

        await email.configure(keep=qbull.Keep(completed=5))

        async def only_five() -> bool:
            await send.enqueue()
            await worker.drain()
            return await completed() == 5

        await eventually(only_five)

        await email.configure(keep=qbull.Keep(completed_for=0.1))

        async def none_left() -> bool:
            return await completed() == 0

        await eventually(none_left, within=30)
    live = await email.live()
    assert live.settings.keep == qbull.Keep(completed_for=0.1)


async def test_a_cancel_from_another_program_follows_the_live_retention(
    app: qbull.App, server_url: str
) -> None:
    settings = qbull.Keep(failed=2)
    email = app.queue("email", keep=settings)

    @email.task
    async def send() -> None: ...

    await email.configure(keep=qbull.Keep(failed=50))
    jobs = await send.enqueue_many([{}] * 10)
    async with qbull.App(server_url, prefix="test") as other:
        again = other.queue("email", keep=settings)
        for job in jobs:
            await again.job(job.id).cancel()

        assert (await again.stats()).cancelled == 10


async def test_a_setting_that_does_not_exist_is_named(app: qbull.App) -> None:
    email = app.queue("email")
    with pytest.raises(qbull.ConfigError, match=r"partitions is no live setting; give some of: concurrency"):
        await email.configure(partitions=4)  # type: ignore[call-arg]
    with pytest.raises(qbull.ConfigError, match=r"timeout=-1"):
        await email.configure(timeout=-1)
