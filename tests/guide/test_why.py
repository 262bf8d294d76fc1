"""Why is this job not running? Every answer has words for people and a kind for programs."""

from __future__ import annotations

import asyncio
from typing import Any

import qbull
from conftest import eventually


async def why(job: qbull.Job[Any]) -> list[str]:
    return [reason.code for reason in (await job.why()).reasons]


async def test_a_job_that_runs_says_where_and_since_when(app: qbull.App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    @app.queue("email").task
    async def send() -> None:
        begun.set()
        await let_go.wait()

    job = await send.enqueue()
    async with app.worker() as worker:
        await begun.wait()
        answer = await job.why()
        let_go.set()

    (reason,) = answer.reasons
    assert (reason.code, reason.worker) == ("running", worker.id)
    assert reason.since is not None
    assert str(answer) == f"worker {worker.id} has it since {reason.since:%Y-%m-%d %H:%M:%S} UTC"


async def test_a_finished_job_says_how_it_ended(app: qbull.App) -> None:
    @app.queue("email").task
    async def send(to: str) -> None:
        if to == "nobody":
            raise qbull.Fail("no mailbox")

    good, bad, stopped = await send.enqueue("ada"), await send.enqueue("nobody"), await send.enqueue("bob")
    await stopped.cancel("not needed any more")
    async with app.worker() as worker:
        await worker.drain()

    assert await why(good) == ["finished"]
    assert "it failed permanently at" in str(await bad.why()) and "no mailbox" in str(await bad.why())
    assert "it was cancelled at" in str(await stopped.why())


async def test_a_job_without_anybody_to_run_it_says_so(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    job = await send.enqueue()

    assert await why(job) == ["no-worker"]
    assert str(await job.why()) == (
        'no live worker serves queue "email"; start one with "qbull worker MODULE:APP"'
    )


async def test_a_task_that_no_worker_knows_is_named(app: qbull.App, server_url: str) -> None:
    older = qbull.App(server_url, prefix="test")
    old_queue, queue = older.queue("email"), app.queue("email")

    @old_queue.task
    async def send() -> None: ...

    @queue.task
    async def bounce() -> None: ...

    await old_queue.pause()
    async with older.worker():
        job = await bounce.enqueue()

        assert await why(job) == ["paused", "no-task"]
        assert 'no live worker of the queue knows task "bounce"; they know: send' in str(await job.why())
    await older.close()


async def test_a_paused_queue_says_by_whom(app: qbull.App) -> None:
    email = app.queue("email")

    @email.task
    async def send() -> None: ...

    await email.pause(by="ada")
    async with app.worker():
        job = await send.enqueue()
        answer = await job.why()

    assert answer.reasons[0].code == "paused"
    assert 'queue "email" is paused, by ada since' in str(answer)


async def test_a_delayed_job_says_until_when(app: qbull.App) -> None:
    @app.queue("email").task
    async def send() -> None: ...

    async with app.worker():
        job = await send.options(delay=3600).enqueue()
        answer, info = await job.why(), await job.info()

    (reason,) = answer.reasons
    assert info is not None
    assert (reason.code, reason.until) == ("due", info.due_at)


async def test_a_job_that_waits_for_its_retry_says_what_went_wrong(app: qbull.App) -> None:
    @app.queue("email", retry=qbull.Retry(delays=(3600,))).task
    async def send() -> None:
        raise ConnectionError("away")

    job = await send.enqueue()
    async with app.worker():

        async def retrying() -> bool:
            return await why(job) == ["retry"]

        await eventually(retrying)
        assert "attempt 1 failed" in str(await job.why())


async def test_behind_which_job_of_its_key_it_waits(app: qbull.App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    chat = app.queue("chat", order="key")

    @chat.task(key="{phone}")
    async def answer(phone: str) -> None:
        begun.set()
        await let_go.wait()

    first, second, third = [await answer.enqueue("+1") for _ in range(3)]
    async with app.worker() as worker:
        await begun.wait()
        behind_first, behind_second = await second.why(), await third.why()
        let_go.set()
        await worker.drain()

    assert [reason.job for reason in behind_first.reasons] == [first.id]
    assert f'it is number 1 behind job {first.id} of its key "+1", which worker {worker.id} has' in str(
        behind_first
    )
    assert f"it is number 2 behind job {first.id}" in str(behind_second)


async def test_jobs_of_a_train_say_behind_which_they_are(app: qbull.App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    chat = app.queue("chat", order="key")

    @chat.task(key="{phone}")
    async def answer(phone: str, n: int) -> None:
        if n == 1:
            begun.set()
            await let_go.wait()

    jobs = await answer.enqueue_many([{"phone": "+1", "n": n} for n in range(4)])
    async with app.worker() as worker:
        await begun.wait()
        answers = [await job.why() for job in jobs[1:]]
        let_go.set()
        await worker.drain()

    assert [answer.reasons[0].code for answer in answers] == ["running", "behind", "behind"]
    assert [answer.reasons[0].job for answer in answers[1:]] == [jobs[1].id, jobs[1].id]


async def test_behind_a_job_that_waits_for_its_retry(app: qbull.App) -> None:
    chat = app.queue("chat", order="key", retry=qbull.Retry(delays=(3600,)))

    @chat.task(key="{phone}")
    async def answer(phone: str) -> None:
        raise ConnectionError("away")

    first, second = [await answer.enqueue("+1") for _ in range(2)]
    async with app.worker():

        async def retrying() -> bool:
            return await why(first) == ["retry"]

        await eventually(retrying)
        (reason,) = (await second.why()).reasons
        assert (reason.code, reason.job) == ("behind", first.id)
        assert "which is delayed" in reason.text


async def test_a_halted_lane_names_the_dead_letter(app: qbull.App) -> None:
    ledger = app.queue("ledger", order="key", on_failed="halt")

    @ledger.task(key="{account}")
    async def post(account: str) -> None:
        raise qbull.Fail("does not balance")

    broken, behind = [await post.enqueue("a") for _ in range(2)]
    async with app.worker():

        async def halted() -> bool:
            return await why(behind) == ["halted"]

        await eventually(halted)
        (reason,) = (await behind.why()).reasons
        assert reason.job == broken.id
        assert "retry or remove it" in reason.text


async def test_limits_that_are_used_up_are_named(app: qbull.App) -> None:
    let_go = asyncio.Event()
    sms = app.queue("sms", rate=qbull.Rate(1, per=3600))
    reports = app.queue("reports", max_active=1, concurrency=5)

    @sms.task
    async def send() -> None: ...

    @reports.task
    async def render() -> None:
        await let_go.wait()

    sent, unsent = await send.enqueue(), await send.enqueue()
    rendering, unrendered = await render.enqueue(), await render.enqueue()
    async with app.worker():

        async def both_wait() -> bool:
            return (await why(unsent), await why(unrendered)) == (["rate"], ["limit"])

        await eventually(both_wait)
        assert "the rate of the queue, 1 in 3600 s, is used up until" in str(await unsent.why())
        assert "1 jobs of the queue run, and max_active is 1" in str(await unrendered.why())
        let_go.set()
    assert await sent.state() == "completed"
    assert await rendering.state() == "completed"


async def test_a_key_that_has_had_its_starts_says_so(app: qbull.App) -> None:
    crm = app.queue("crm", lane=qbull.Lane(rate=qbull.Rate(1, per=3600)))

    @crm.task(key="{tenant}")
    async def sync(tenant: str) -> None: ...

    _, second = [await sync.enqueue("a") for _ in range(2)]
    async with app.worker():

        async def put_off() -> bool:
            return await why(second) == ["put-off"]

        await eventually(put_off)
        assert 'its key "a" has had its starts, 1 in 3600 s' in str(await second.why())


async def test_a_held_queue_says_until_when_and_because_of_what(app: qbull.App) -> None:
    sms = app.queue("sms", concurrency=1)

    @sms.task
    async def send(n: int) -> None:
        raise qbull.RetryAfter(3600, "too many requests", queue=True)

    _, second = await send.enqueue(1), await send.enqueue(2)
    async with app.worker():

        async def held() -> bool:
            return (await why(second))[0] == "held"

        await eventually(held)
        assert "too many requests" in str(await second.why())


async def test_busy_workers_and_the_jobs_before_it(app: qbull.App) -> None:
    let_go = asyncio.Event()
    email = app.queue("email", concurrency=2)

    @email.task
    async def send() -> None:
        await let_go.wait()

    jobs = await send.enqueue_many([{}] * 6)
    async with app.worker():

        async def busy() -> bool:
            return await why(jobs[-1]) == ["busy", "line"]

        await eventually(busy)
        answer = str(await jobs[-1].why())
        let_go.set()

    assert answer == "all 2 slots of the queue's workers are in use; 3 others come first"


async def test_an_unknown_job_has_no_reasons(app: qbull.App) -> None:
    app.queue("email")

    answer = await app.job("email", "nobody").why()

    assert (answer.state, answer.reasons) == (None, ())
    assert str(answer) == 'queue "email": no job nobody; it never existed, or its retention has ended'
