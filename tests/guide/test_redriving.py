"""Redriving: dead letters run again, once what made them fail is mended."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import qbull
from conftest import eventually


class BillingQueue:
    """A queue whose task fails until it is mended."""

    def __init__(self, app: qbull.App, **settings: Any) -> None:
        self.app = app
        self.queue = app.queue("billing", concurrency=1, retry=qbull.Retry(attempts=2, delay=0), **settings)
        self.broken = True
        self.charged: list[int] = []

        @self.queue.task(key="{customer}")
        async def charge(customer: str, amount: int) -> int:
            if self.broken:
                raise ConnectionError(f"no till for {customer}")
            self.charged.append(amount)
            return amount

        self.charge = charge

    async def work(self) -> None:
        async with self.app.worker() as worker:
            await worker.drain()


async def test_a_dead_letter_runs_again_with_its_history(app: qbull.App) -> None:
    billing = BillingQueue(app)
    job = await billing.charge.enqueue("c1", 5)
    await billing.work()
    before = await job.info()
    billing.broken = False

    answer = await job.retry()

    waiting = await job.info()
    assert answer == "waiting"
    assert before is not None
    assert waiting is not None
    assert (waiting.state, waiting.attempt, waiting.payload) == (
        "waiting",
        1,
        {"customer": "c1", "amount": 5},
    )
    assert [attempt.attempt for attempt in waiting.history] == [1, 2]
    assert waiting.history[-1].error == "ConnectionError: no till for c1"
    assert waiting.created_at == before.created_at
    await billing.work()
    assert await job.result(timeout=10) == 5
    assert await billing.queue.jobs("failed") == []


async def test_a_dead_letter_runs_again_with_other_arguments(app: qbull.App) -> None:
    billing = BillingQueue(app)
    job = await billing.charge.enqueue("c1", 5)
    await billing.work()
    billing.broken = False

    await job.retry(payload={"customer": "c1", "amount": 6})
    await billing.work()

    assert await job.result(timeout=10) == 6


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"customer": "c1"}, "missing a required argument: 'amount'"),
        ({"customer": "c1", "amount": "much"}, "amount: expected int, got str"),
        ({"customer": "c2", "amount": 5}, 'these arguments have the key "c2", the job has "c1"'),
    ],
)
async def test_other_arguments_must_fit_the_task_and_keep_the_key(
    app: qbull.App, payload: dict[str, Any], message: str
) -> None:
    billing = BillingQueue(app)
    job = await billing.charge.enqueue("c1", 5)
    await billing.work()

    with pytest.raises(qbull.ArgumentsError, match=message):
        await job.retry(payload=payload)

    assert await job.state() == "failed"


async def test_dead_letters_run_again_with_a_patch_of_their_arguments(app: qbull.App) -> None:
    billing = BillingQueue(app, partitions=2)
    await billing.charge.enqueue_many([{"customer": f"c{n}", "amount": n} for n in range(10)])
    await billing.work()
    billing.broken = False

    redriven = await billing.queue.redrive(patch={"amount": 7})
    await billing.work()

    assert redriven == 10
    assert billing.charged == [7] * 10


async def test_a_patch_leaves_jobs_that_it_does_not_fit_as_they_are(app: qbull.App) -> None:
    billing = BillingQueue(app)
    kept, moved = await billing.charge.enqueue_many(
        [{"customer": "c1", "amount": 5}, {"customer": "c2", "amount": 5}]
    )
    await billing.work()
    steps: list[qbull.Redriven] = []

    redriven = await billing.queue.redrive(patch={"customer": "c1"}, on_step=steps.append)
    removed = await billing.queue.redrive(patch={"amount": None})

    assert (redriven, removed) == (1, 0)
    assert (steps[-1].refused, await kept.state(), await moved.state()) == (1, "waiting", "failed")
    assert steps[-1].refusal is not None
    assert f'job {moved.id}: task "charge": these arguments have the key "c1"' in steps[-1].refusal


@pytest.mark.parametrize("patch", [{}, [], "amount"])
async def test_a_patch_is_an_object_with_changes(app: qbull.App, patch: Any) -> None:
    billing = BillingQueue(app)
    with pytest.raises(qbull.ArgumentsError, match="give a JSON object with the changes"):
        await billing.queue.redrive(patch=patch)


async def test_a_program_without_the_code_checks_a_patch_by_the_published_schema(
    app: qbull.App, server_url: str
) -> None:
    billing = BillingQueue(app)
    job = await billing.charge.enqueue("c1", 5)
    await billing.work()
    billing.broken = False
    texts: list[str] = []

    async with qbull.App(server_url, prefix="test") as other:
        queue = other.queue("billing")
        for patch in ({"amount": "much"}, {"customer": "c2"}, {"colour": "red"}):
            steps: list[qbull.Redriven] = []
            assert await queue.redrive(patch=patch, on_step=steps.append) == 0
            texts.append(steps[-1].refusal or "")
        assert await queue.redrive(patch={"amount": 8}) == 1
    await billing.work()

    assert await job.result(timeout=10) == 8
    assert "amount: expected integer, got string" in texts[0]
    assert 'these arguments have the key "c2", the job has "c1"' in texts[1]
    assert "colour" in texts[2]


async def test_all_dead_letters_run_again_the_oldest_first(app: qbull.App) -> None:
    billing = BillingQueue(app, order="key")
    await billing.charge.enqueue_many([{"customer": f"c{n % 2}", "amount": n} for n in range(20)])
    await billing.work()
    billing.broken = False
    steps: list[qbull.Redriven] = []

    redriven = await billing.queue.redrive(on_step=steps.append)
    await billing.work()

    assert redriven == 20
    assert steps[-1] == qbull.Redriven(redriven=20, looked_at=20)
    assert [n for n in billing.charged if n % 2] == list(range(1, 20, 2))
    assert [n for n in billing.charged if not n % 2] == list(range(0, 20, 2))


async def test_a_redrive_takes_what_is_meant_and_no_more_than_asked(app: qbull.App) -> None:
    billing = BillingQueue(app, partitions=2)
    await billing.charge.enqueue_many([{"customer": f"c{n}", "amount": n} for n in range(10)])
    await billing.work()

    others = await billing.queue.redrive(task="refund")
    later = await billing.queue.redrive(after=datetime(2100, 1, 1, tzinfo=UTC))
    one = await billing.queue.redrive(error_contains="NO TILL for c3")
    some = await billing.queue.redrive(limit=4)
    rest = await billing.queue.redrive()

    assert (others, later, one, some, rest) == (0, 0, 1, 4, 5)
    assert (await billing.queue.stats()).waiting == 10


async def test_a_redrive_has_a_rate(app: qbull.App) -> None:
    billing = BillingQueue(app)
    await billing.charge.enqueue_many([{"customer": "c", "amount": n} for n in range(10)])
    await billing.work()
    clock = asyncio.get_running_loop().time
    began = clock()

    await billing.queue.redrive(rate=50)

    assert clock() - began >= 10 / 50


async def test_a_redrive_ends_although_its_jobs_fail_again(app: qbull.App) -> None:
    billing = BillingQueue(app)
    await billing.charge.enqueue_many([{"customer": "c", "amount": n} for n in range(30)])
    await billing.work()

    async with app.worker() as worker:
        redriven = await billing.queue.redrive(rate=200)
        await worker.drain()

    assert redriven == 30
    assert (await billing.queue.stats()).failed == 30


async def test_two_redrives_at_a_time_send_each_job_round_once(app: qbull.App) -> None:
    billing = BillingQueue(app)
    await billing.charge.enqueue_many([{"customer": "c", "amount": n} for n in range(300)])
    await billing.work()
    billing.broken = False

    both = await asyncio.gather(billing.queue.redrive(), billing.queue.redrive())
    await billing.work()

    assert sum(both) == 300
    assert sorted(billing.charged) == list(range(300))


async def test_a_halted_lane_goes_on_from_its_head(app: qbull.App) -> None:
    billing = BillingQueue(app, order="key", on_failed="halt")
    jobs = await billing.charge.enqueue_many([{"customer": "c", "amount": n} for n in range(5)])
    await billing.work()
    assert [await job.state() for job in jobs] == ["failed"] + ["waiting"] * 4
    billing.broken = False

    await jobs[0].retry()
    await billing.work()

    assert billing.charged == [0, 1, 2, 3, 4]


async def test_a_halted_lane_goes_on_when_its_dead_letter_is_removed(app: qbull.App) -> None:
    billing = BillingQueue(app, order="key", on_failed="halt")
    jobs = await billing.charge.enqueue_many([{"customer": "c", "amount": n} for n in range(3)])
    await billing.work()
    billing.broken = False

    assert await jobs[0].remove() == "removed"
    await billing.work()

    assert billing.charged == [1, 2]
    assert await jobs[0].info() is None


@pytest.mark.parametrize("by", ["redrive", "retry"])
async def test_a_program_that_does_not_declare_the_order_does_not_break_it(app: qbull.App, by: str) -> None:
    ran: list[str] = []
    queue = app.queue("billing", order="key", retry=qbull.Retry(attempts=2, delay=600))

    @queue.task(key="{customer}")
    async def charge(customer: str, fails: str) -> None:
        ran.append(f"{customer} {fails}")
        if fails == "for good":
            raise qbull.Fail("no such card")
        if fails == "once":
            raise ConnectionError("no till")

    dead = await charge.enqueue("c1", "for good")
    holds = await charge.enqueue("c1", "once")

    async def it_waits_for_its_retry() -> bool:
        return await holds.state() == "delayed"

    async with app.worker():
        await eventually(it_waits_for_its_retry)
    async with qbull.App(app.url, prefix=app.prefix) as other:
        steered = other.queue("billing")

        await (steered.redrive() if by == "redrive" else steered.job(dead.id).retry())

    await charge.enqueue("c2", "never")
    async with app.worker():

        async def the_other_customer_was_served() -> bool:
            return "c2 never" in ran

        await eventually(the_other_customer_was_served)
    assert ran == ["c1 for good", "c1 once", "c2 never"]
    assert (await dead.state(), await holds.state()) == ("waiting", "delayed")


async def test_only_what_failed_or_was_cancelled_is_retried(app: qbull.App) -> None:
    billing = BillingQueue(app)
    billing.broken = False
    done = await billing.charge.enqueue("c", 1)
    await billing.work()
    waiting = await billing.charge.enqueue("c", 2)
    delayed = await billing.charge.options(delay=60).enqueue("c", 3)

    with pytest.raises(qbull.Conflict, match="has completed; enqueue it again") as refused:
        await done.retry()
    with pytest.raises(qbull.Conflict, match="is waiting and will run"):
        await waiting.retry()
    with pytest.raises(qbull.Conflict, match=r"is delayed; promote\(\) lets it run now"):
        await delayed.retry()
    with pytest.raises(qbull.NotFound, match="no job nobody"):
        await billing.queue.job("nobody").retry()

    assert refused.value.state == "completed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit=0: give a whole number from 1"),
        ({"rate": 0}, "rate=0: give a number of jobs in a second"),
        ({"task": ""}, "task='': give a text that is not empty"),
        ({"after": datetime(2030, 1, 1)}, "after=2030-01-01T00:00:00: has no time zone"),
    ],
)
async def test_a_redrive_that_makes_no_sense_is_refused(
    app: qbull.App, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(qbull.ArgumentsError, match=message):
        await app.queue("billing").redrive(**options)
