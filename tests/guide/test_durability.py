"""Durability: how safe a job is when `enqueue` has returned."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.core.durability import Durability
from qbull.store import confirm, retry
from topology import Pair, raised_pair

pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.timeout(60)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A primary and its replica, both of which flush every write."""
    with raised_pair(tmp_path) as pair:
        yield pair


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "CONFIRM_TIMEOUT_SECONDS", 1.0)


@pytest.mark.parametrize("profile", ["fast", "durable", "replicated", "strict"])
async def test_an_app_says_how_safe_its_jobs_are(pair: Pair, profile: Durability) -> None:
    async with qbull.App(pair.url, durability=profile) as app:
        queue = app.queue("orders")

        @queue.task
        async def charge(order: int) -> int:
            return order

        job = await charge.enqueue(order=7)
        many = await charge.enqueue_many([{"order": n} for n in range(3)])

        assert job.created and all(one.created for one in many)
        async with app.worker():
            assert await job.result(timeout=20) == 7


async def test_a_job_of_synchronous_code_is_as_safe(pair: Pair) -> None:
    app = qbull.App(pair.url, durability="strict")

    @app.queue("orders").task
    async def charge(order: int) -> None: ...

    job = await asyncio.to_thread(charge.enqueue_sync, 7)

    index = "{qbull:orders:0}:index"
    assert pair.replicas[0].tell("HEXISTS", index, job.id) == 1
    await asyncio.to_thread(app.close_sync)


async def test_a_job_on_a_replica_outlives_its_primary(pair: Pair) -> None:
    async with qbull.App(pair.url, durability="replicated") as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        jobs = await asyncio.gather(*(charge.enqueue(order=n) for n in range(100)))
        pair.primary.kill()

    pair.replicas[0].tell("REPLICAOF", "NO", "ONE")
    async with qbull.App(pair.url.replace(str(pair.primary.port), str(pair.replicas[0].port))) as after:
        queue = after.queue("orders")

        assert (await queue.stats()).waiting == 100
        assert await queue.job(jobs[-1].id).state() == "waiting"


async def test_strict_jobs_outlive_the_end_of_all_servers(pair: Pair) -> None:
    async with qbull.App(pair.url, durability="strict") as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        jobs = await asyncio.gather(*(charge.enqueue(order=n) for n in range(100)))
        for node in (pair.primary, *pair.replicas):
            node.kill()

    for node in (pair.primary, *pair.replicas):
        node.start()
        await asyncio.to_thread(node.tell_when_up, "PING")
        kept = {id.decode() for id in node.tell("HKEYS", "{qbull:orders:0}:index")}
        assert kept == {job.id for job in jobs}


async def test_what_is_not_confirmed_is_there_and_can_be_sent_again(pair: Pair, hurried: None) -> None:
    async with qbull.App(pair.url, durability="replicated") as app:
        queue = app.queue("orders", partitions=4)

        @queue.task
        async def charge(order: int) -> None: ...

        await charge.enqueue(order=0)
        pair.replicas[0].kill(signal.SIGSTOP)
        with pytest.raises(qbull.NotConfirmed, match="is on the server but not confirmed") as unconfirmed:
            await charge.enqueue(order=7)
        [id] = unconfirmed.value.ids
        assert await queue.job(id).state() == "waiting"

        async def again() -> qbull.Job[None] | None:
            try:
                return await charge.options(id=id).enqueue(order=7)
            except qbull.NotConfirmed:
                return None

        pair.replicas[0].kill(signal.SIGCONT)
        job: qbull.Job[None] = await eventually(again)

        assert (job.id, job.created) == (id, False)
        assert (await queue.stats()).total == 2


async def test_each_of_many_is_told_its_own_id(pair: Pair, hurried: None) -> None:
    async with qbull.App(pair.url, durability="replicated") as app:

        @app.queue("orders").task(id="order-{order}")
        async def charge(order: int) -> None: ...

        await charge.enqueue(order=0)
        pair.replicas[0].kill(signal.SIGSTOP)

        told = await asyncio.gather(*(charge.enqueue(order=n) for n in range(1, 4)), return_exceptions=True)
        with pytest.raises(qbull.NotConfirmed, match="3 jobs are on the server") as at_once:
            await charge.enqueue_many([{"order": n} for n in range(4, 7)])

        assert [error.ids for error in told if isinstance(error, qbull.NotConfirmed)] == [
            ("order-1",),
            ("order-2",),
            ("order-3",),
        ]
        assert at_once.value.ids == ("order-4", "order-5", "order-6")


async def test_a_queue_that_is_not_confirmed_has_no_jobs_yet(
    pair: Pair, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server must know of a queue is as safe as its jobs, and comes before them."""
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 0.1)
    async with qbull.App(pair.url, durability="replicated") as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        new = app.queue("refunds")

        @new.task
        async def refund(order: int) -> None: ...

        await charge.enqueue(order=0)
        pair.replicas[0].kill(signal.SIGSTOP)

        with pytest.raises(qbull.ServerAway, match="0 of 1 replicas have it after"):
            await refund.enqueue(order=1)
        assert (await new.stats()).total == 0


async def test_one_enqueue_may_ask_for_more_or_less(pair: Pair, hurried: None) -> None:
    async with qbull.App(pair.url, durability="replicated") as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        await charge.enqueue(order=0)
        pair.replicas[0].kill(signal.SIGSTOP)

        assert (await charge.options(durability="fast").enqueue(order=1)).created
        assert (await charge.options(durability="durable").enqueue(order=2)).created
        with pytest.raises(qbull.NotConfirmed):
            await charge.enqueue(order=3)


async def test_concurrent_enqueues_share_one_confirmation(pair: Pair) -> None:
    async with qbull.App(pair.url) as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        await charge.options(durability="replicated").enqueue(order=0)
        pair.primary.tell("CONFIG", "RESETSTAT")
        await asyncio.gather(
            *(charge.options(durability="replicated").enqueue(order=n) for n in range(500)),
            *(charge.enqueue(order=n) for n in range(500)),
        )

        stats = pair.primary.info("commandstats")
        assert stats["cmdstat_wait"]["calls"] < 10


async def test_without_a_profile_nothing_is_asked_or_waited_for(pair: Pair) -> None:
    async with qbull.App(pair.url) as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        pair.primary.tell("CONFIG", "SET", "appendonly", "no")
        pair.primary.tell("CONFIG", "RESETSTAT")
        pair.replicas[0].kill(signal.SIGSTOP)
        assert (await charge.enqueue(order=1)).created

        stats = pair.primary.info("commandstats")
        assert {"cmdstat_wait", "cmdstat_waitaof", "cmdstat_role", "cmdstat_set"}.isdisjoint(stats)


async def test_a_server_that_cannot_hold_it_is_refused_in_one_line(pair: Pair) -> None:
    pair.primary.tell("CONFIG", "SET", "appendfsync", "everysec")
    async with qbull.App(pair.url, durability="durable") as app:
        queue = app.queue("orders")

        @queue.task
        async def charge(order: int) -> None: ...

        with pytest.raises(qbull.ServerRefused, match='run "CONFIG SET appendfsync always"') as refused:
            await charge.enqueue(order=7)

        assert "\n" not in str(refused.value)
        assert (await queue.stats()).total == 0


def test_the_embedded_server_is_durable_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert qbull.App(f"embedded://{tmp_path}").durability == "durable"
    assert qbull.App("redis://localhost").durability is None
    assert qbull.App(f"embedded://{tmp_path}", durability="fast").durability == "fast"
    monkeypatch.setenv("QBULL_DURABILITY", "strict")
    assert qbull.App("redis://localhost").durability == "strict"
    assert qbull.App("redis://localhost", durability="fast").durability == "fast"


async def test_the_embedded_server_holds_what_it_promises(tmp_path: Path) -> None:
    async with qbull.App(f"embedded://{tmp_path / 'own'}") as app:

        @app.queue("orders").task
        async def charge(order: int) -> None: ...

        assert (await charge.enqueue(order=7)).created
        with pytest.raises(
            qbull.ServerRefused, match='"replicated" does not hold here: nothing says how many'
        ):
            await charge.options(durability="replicated").enqueue(order=8)


def test_a_profile_that_is_none_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        qbull.ConfigError, match=r"^durability='safe': use one of fast, durable, replicated, strict"
    ):
        qbull.App("redis://localhost", durability="safe")  # type: ignore[arg-type]
    app = qbull.App("redis://localhost")

    @app.queue("orders").task
    async def charge(order: int) -> None: ...

    with pytest.raises(qbull.ArgumentsError, match="durability='safe'"):
        charge.options(durability="safe")  # type: ignore[arg-type]
    monkeypatch.setenv("QBULL_DURABILITY", "very")
    with pytest.raises(qbull.ConfigError, match=r"^QBULL_DURABILITY='very': use one of"):
        qbull.App("redis://localhost")
