"""Two addresses that fail hold nobody up: a job of a lane without an order waits for its retry outside the lane."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.store.read.health import read_health
from qbull.store.store import Store

HOUR = 3600


class Mail:
    """A queue of mail for one municipality. Addresses fail until they are mended."""

    def __init__(self, app: qbull.App, limit: int = 2, wait: float = HOUR, **settings: Any) -> None:
        self.sent: list[str] = []
        self.broken: set[str] = set()
        self.failures_left: Counter[str] = Counter()
        self.running: set[str] = set()
        self.most = 0
        self.pace = 0.0
        self.queue = app.queue(
            "mail",
            lane=qbull.Lane(limit=limit),
            concurrency=10,
            retry=qbull.Retry(attempts=10, delays=(wait,)),
            **settings,
        )

        @self.queue.task(key="{municipality}")
        async def send(municipality: str, address: str) -> None:
            self.running.add(address)
            self.most = max(self.most, len(self.running))
            try:
                await asyncio.sleep(self.pace)
                self.failures_left[address] -= 1
                if address in self.broken or self.failures_left[address] >= 0:
                    raise ConnectionError(address)
                self.sent.append(address)
            finally:
                self.running.discard(address)

        self.send = send

    async def enqueue(self, *addresses: str) -> list[Any]:
        return await self.send.enqueue_many(
            [{"municipality": "Rosario", "address": address} for address in addresses]
        )

    async def has_sent(self, *addresses: str) -> bool:
        return set(addresses) <= set(self.sent)

    async def are_delayed(self, *jobs: Any) -> bool:
        return [await job.state() for job in jobs] == ["delayed"] * len(jobs)


GOOD = [f"good{n}" for n in range(20)]


@pytest.mark.parametrize("limit", [1, 2])
async def test_addresses_that_fail_do_not_hold_up_the_others_of_their_key(app: qbull.App, limit: int) -> None:
    mail = Mail(app, limit)
    mail.broken = {"bad1", "bad2"}
    bad = await mail.enqueue("bad1", "bad2")
    await mail.enqueue(*GOOD)

    async with app.worker():
        await eventually(lambda: mail.has_sent(*GOOD))

    assert await mail.are_delayed(*bad)
    assert mail.most <= limit


async def test_a_train_of_a_lane_with_one_slot_goes_on_behind_failures(app: qbull.App) -> None:
    """With one slot the jobs of a lane come as a train, in which every other one fails here."""
    mail = Mail(app, 1)
    mail.broken = {f"bad{n}" for n in range(20)}
    bad = await mail.enqueue(*(f"{word}{n}" for n in range(20) for word in ("good", "bad")))

    async with app.worker():
        await eventually(lambda: mail.has_sent(*GOOD))
        await eventually(lambda: mail.are_delayed(*bad[1::2]))

    assert (mail.most, Counter(mail.sent).most_common(1)[0][1]) == (1, 1)


async def test_a_key_with_an_order_waits_for_its_retry(app: qbull.App) -> None:
    queue = app.queue("orders", order="key", retry=qbull.Retry(attempts=2, delays=(HOUR,)))
    ran: list[int] = []

    @queue.task(key="one")
    async def step(n: int) -> None:
        ran.append(n)
        if ran == [0]:
            raise ConnectionError

    first, *_ = await step.enqueue_many([{"n": n} for n in range(4)])
    async with app.worker() as worker:

        async def waits() -> bool:
            return await first.state() == "delayed"

        await eventually(waits)
        await first.promote()
        await worker.drain()

    assert ran == [0, 0, 1, 2, 3]


async def test_a_retry_that_is_due_runs_next(app: qbull.App) -> None:
    mail, go = Mail(app, 1), asyncio.Event()

    @mail.queue.task(key="{municipality}")
    async def hold(municipality: str) -> None:
        await go.wait()

    mail.broken = {"bad"}
    (bad,) = await mail.enqueue("bad")
    async with app.worker() as worker:
        await eventually(lambda: mail.are_delayed(bad))
        holder = await hold.enqueue("Rosario")

        async def is_held() -> bool:
            return await holder.state() == "active"

        await eventually(is_held)
        await mail.enqueue("later1", "later2")
        mail.broken = set()
        await bad.promote()
        assert await bad.state() == "waiting"
        go.set()
        await worker.drain()

    assert mail.sent == ["bad", "later1", "later2"]


@pytest.mark.parametrize("limit", [1, 3])
async def test_never_more_than_the_limit_run_while_retries_come_and_go(app: qbull.App, limit: int) -> None:
    mail = Mail(app, limit, wait=0.02)
    addresses = [f"a{n}" for n in range(60)]
    mail.failures_left.update(dict.fromkeys(addresses[::2], 3))
    mail.pace = 0.002
    await mail.enqueue(*addresses)

    async with app.worker(), app.worker():
        await eventually(lambda: mail.has_sent(*addresses), within=60)

    assert mail.most <= limit
    assert len(mail.sent) == len(set(mail.sent)) == 60


async def test_a_retry_outlives_its_worker(app: qbull.App) -> None:
    mail = Mail(app, wait=0.3)
    mail.broken = {"bad"}
    (bad,) = await mail.enqueue("bad")
    async with app.worker():
        await eventually(lambda: mail.are_delayed(bad))

    mail.broken = set()
    async with app.worker():
        await bad.result(timeout=20)


async def test_a_retry_moves_to_the_new_partition_of_its_lane(app: qbull.App) -> None:
    mail = Mail(app, 1, partitions=2)
    mail.broken = {"bad"}
    (bad,) = await mail.enqueue("bad")
    async with app.worker() as worker:
        await eventually(lambda: mail.are_delayed(bad))
        await mail.queue.repartition(5)
        await mail.enqueue(*GOOD)
        await eventually(lambda: mail.has_sent(*GOOD))

        async def is_settled() -> bool:
            return await mail.queue.repartitioning() is None

        await eventually(is_settled)
        mail.broken = set()
        await bad.promote()
        await worker.drain()

    assert mail.sent[-1] == "bad"
    assert await bad.state() == "completed"


async def test_health_and_why_say_that_nobody_waits_behind_the_retry(app: qbull.App, store: Store) -> None:
    mail, go = Mail(app, 1), asyncio.Event()

    @mail.queue.task(key="{municipality}")
    async def hold(municipality: str) -> None:
        await go.wait()

    mail.broken = {"bad"}
    (bad,) = await mail.enqueue("bad")
    async with app.worker():
        await eventually(lambda: mail.are_delayed(bad))
        holder = await hold.enqueue("Rosario")

        async def is_held() -> bool:
            return await holder.state() == "active"

        await eventually(is_held)
        (next_one,) = await mail.enqueue("later")
        [facts] = (await read_health(store, [mail.queue.settings])).facts.queues
        reasons = [(await job.why()).reasons[0] for job in (bad, next_one)]
        go.set()
        await next_one.result(timeout=20)

    assert facts.blocked == ()
    assert [reason.code for reason in reasons] == ["retry", "behind"]
    assert reasons[1].job == holder.id


async def test_a_newer_job_of_a_unique_name_still_waits_for_the_retry_of_the_older(app: qbull.App) -> None:
    queue = app.queue("reports", lane=qbull.Lane(limit=1), retry=qbull.Retry(attempts=2, delays=(HOUR,)))
    ran: list[int] = []
    started, go = asyncio.Event(), asyncio.Event()

    @queue.task(key="{tenant}")
    async def build(tenant: str, version: int) -> None:
        ran.append(version)
        if ran == [1]:
            started.set()
            await go.wait()
            raise ConnectionError

    newest = build.options(unique=qbull.Unique(by=("tenant",), mode="after"))
    async with app.worker() as worker:
        first = await newest.enqueue("t", 1)
        await started.wait()
        await newest.enqueue("t", 2)
        go.set()

        async def waits() -> bool:
            return await first.state() == "delayed"

        await eventually(waits)
        await first.promote()
        await worker.drain()

    assert ran == [1, 1, 2], "the newest arguments run last"


async def test_a_step_of_a_flow_that_waits_for_its_retry_holds_up_no_other_flow(app: qbull.App) -> None:
    mail, ended = Mail(app, 1), list[str]()

    @mail.queue.task(key="{municipality}")
    async def archive(municipality: str, address: str) -> None:
        ended.append(address)

    mail.broken = {"bad"}
    flows = [
        await qbull.chain(mail.send.step("Rosario", to), archive.step("Rosario", to)).enqueue()
        for to in ("bad", "good")
    ]
    async with app.worker() as worker:

        async def good_ended() -> bool:
            return ended == ["good"]

        await eventually(good_ended)
        mail.broken = set()
        (bad,) = await mail.queue.jobs("delayed", 0, 1)
        await mail.queue.job(bad.id).promote()
        await worker.drain()

        async def all_ended() -> bool:
            return [await flow.last.state() for flow in flows] == ["completed"] * 2

        await eventually(all_ended)
    assert ended == ["good", "bad"]


async def test_jobs_of_a_chunk_that_fail_leave_their_slots(app: qbull.App) -> None:
    queue = app.queue(
        "bulk", lane=qbull.Lane(limit=4), concurrency=8, retry=qbull.Retry(attempts=3, delays=(HOUR,))
    )
    sent: list[str] = []

    @queue.task(chunk=4, wait=0.05)
    async def send(addresses: list[str]) -> list[Exception | None]:
        sent.extend(address for address in addresses if address in GOOD)
        return [None if address in GOOD else ConnectionError(address) for address in addresses]

    keyed = send.options(key="t")
    for address in (*(f"bad{n}" for n in range(4)), *GOOD):
        await keyed.enqueue(address)
    async with app.worker():

        async def all_sent() -> bool:
            return set(GOOD) <= set(sent)

        await eventually(all_sent)
