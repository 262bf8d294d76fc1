"""The server goes away and comes back: jobs and workers survive it, and it is said once when it begins and once when it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

import qbull
from conftest import eventually
from proxy import Proxy
from qbull.embedded.server import EmbeddedServer
from qbull.errors import ServerError
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.worker import fetch
from qbull.worker.outage import Outage
from qbull.worker.process.wait_for_server import wait_for_server
from qbull.worker.worker import Worker


def counting_queue(app: qbull.App, ran: Counter[int], seconds: float = 0.0) -> qbull.Task[[int], None]:
    queue = app.queue("work", order="key", concurrency=20)

    @queue.task(key=lambda n: f"k{n % 7}")
    async def count(n: int) -> None:
        await asyncio.sleep(seconds)
        ran[n] += 1

    return count


@pytest.mark.timeout(120)
async def test_a_killed_server_loses_no_job_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = qbull.App(f"embedded://{tmp_path}")
    ran: Counter[int] = Counter()
    count = counting_queue(app, ran, seconds=0.002)
    caplog.set_level(logging.WARNING, logger="qbull")
    async with app.worker() as worker:
        await count.enqueue_many([{"n": n} for n in range(1000)])
        await eventually(lambda: _has(ran, 200))

        await _kill_server(app)
        more = [asyncio.create_task(count.enqueue(n=n)) for n in range(1000, 1100)]
        await asyncio.gather(*more)
        await worker.drain()

    assert set(ran) == set(range(1100))
    assert (await count.queue.stats()).completed == 1100
    said = [record.getMessage() for record in caplog.records if record.name == "qbull.worker"]
    assert len([line for line in said if "work goes on when it is back" in line]) == 1
    assert len([line for line in said if "the server is back after" in line]) == 1
    await app.close()


@pytest.mark.timeout(120)
async def test_a_server_that_goes_away_while_a_worker_starts_is_waited_for(
    server: EmbeddedServer, store: Store
) -> None:
    """The first queues are served while the others are still being taken up: what ran there must be written down."""
    ran: Counter[str] = Counter()
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")

        async def cut(queue: str) -> None:
            ran[queue] += 1
            if queue == "q0":
                proxy.mood = "loses replies"

        tasks = {f"q{n}": app.queue(f"q{n}").task(name="cut")(cut) for n in range(15)}
        for name, task in tasks.items():
            await task.enqueue(queue=name)

        async def mend() -> bool:
            if proxy.lost > 3:
                proxy.mood = "fair"
            return proxy.lost > 3

        mending = asyncio.create_task(eventually(mend))
        await _start_and_drain(app, mending)

    assert ran == Counter(dict.fromkeys(tasks, 1))


@pytest.mark.timeout(120)
async def test_a_server_that_refuses_while_a_worker_starts_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to end, and what one queue had run by then ran again, after later jobs of the same keys."""
    app = qbull.App(f"embedded://{tmp_path}")
    store = app._client().store
    call = store.server.call
    ran: Counter[str] = Counter()

    async def count(queue: str) -> None:
        ran[queue] += 1

    tasks = {f"q{n}": app.queue(f"q{n}").task(name="count")(count) for n in range(15)}
    for name, task in tasks.items():
        await task.enqueue(queue=name)
    only_one = f"(+xgroup ~{store.names.partition('q0', 0)}*)"
    await call("ACL", "SETUSER", "default", "-xgroup", only_one)

    async def mend() -> bool:
        refused = any("may not use the name" in message for message in caplog.messages)
        if refused and ran["q0"]:
            await call("ACL", "SETUSER", "default", "clearselectors", "+xgroup")
        return refused and ran["q0"] > 0

    mending = asyncio.create_task(eventually(mend))
    await _start_and_drain(app, mending)

    assert ran == Counter(dict.fromkeys(tasks, 1))


async def _start_and_drain(app: qbull.App, mending: asyncio.Task[None]) -> None:
    """Work everything off with a worker that starts while its server has a trouble which somebody is mending."""
    async with app.worker() as worker:
        await mending
        await worker.drain()
    await app.close()


@pytest.mark.parametrize("order", ["key", None])
async def test_an_ordered_job_is_not_begun_while_it_cannot_be_known_whose_it_is(
    server: EmbeddedServer, store: Store, order: Literal["key"] | None
) -> None:
    """Others may have taken it over, and be further by now. Without an order it is begun: it is run at least once."""
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        queue = app.queue("work", order=order)

        @queue.task
        async def step() -> None: ...

        async with app.worker() as worker:
            partition = worker._store.partition(queue.settings, 0)
            theirs = Delivery(partition, "5", b"1-1", [b"taken over", b""], b"51-1", requested_at=0.0)

            proxy.mood = "away"
            asking = asyncio.create_task(worker._runners[0]._slots._still_ours(theirs))
            await asyncio.wait([asking], timeout=0.5 if order else 20)
            begins_at_once = asking.done()
            proxy.mood = "fair"
            is_ours = await asking
        await app.close()

    assert (begins_at_once, is_ours) == ((False, False) if order else (True, True))


async def test_a_worker_that_was_stopped_between_two_jobs_of_a_key_asks_before_the_next(
    app: qbull.App,
) -> None:
    queue = app.queue("work", order="key")

    @queue.task
    async def step() -> None: ...

    async with app.worker() as worker:
        runner = worker._runners[0]._slots
        theirs = Delivery(
            worker._store.partition(queue.settings, 0),
            "5",
            b"1-1",
            [b"taken over", b""],
            b"51-1",
            requested_at=0.0,
        )

        goes_on = await runner._may_go_on(runner._slots[0], theirs.job(0), behind=False)
        runner._max_age = -1.0  # however short the rest was, it was too long
        asks = await runner._may_go_on(runner._slots[0], theirs.job(0), behind=False)

    assert (goes_on, asks) == (True, False)


@pytest.mark.timeout(120)
async def test_lost_replies_double_nothing(server: EmbeddedServer, store: Store) -> None:
    ran: Counter[int] = Counter()
    luck = random.Random(3)
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        count = counting_queue(app, ran)
        async with app.worker() as worker:
            await count.queue.stats()
            for start in range(0, 2000, 50):
                proxy.mood = "loses replies" if luck.random() < 0.3 else "fair"
                sending = asyncio.gather(*(count.enqueue(n=n) for n in range(start, start + 50)))
                await asyncio.wait([sending], timeout=0.05)
                proxy.mood = "fair"
                await sending
            await worker.drain()
        stats = await count.queue.stats()
        await app.close()

    assert proxy.lost > 5, "the test lost no replies"
    assert set(ran) == set(range(2000))
    assert stats.totals["enqueued"] == 2000
    assert stats.completed == 2000


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_job_whose_first_reply_was_lost_was_created_all_the_same(
    server: EmbeddedServer, store: Store, key: str | None
) -> None:
    """Its id was made for this call: it is there because the call was sent before."""
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        queue = app.queue("work", order="key")

        @queue.task
        async def step() -> None: ...

        await step.options(key=key).enqueue()
        proxy.mood = "loses replies"
        sending = asyncio.create_task(step.options(key=key).enqueue())
        await eventually(lambda: _lost(proxy, 1))
        proxy.mood = "fair"
        job = await sending
        stats = await queue.stats()
        await app.close()

    assert (job.created, stats.totals["enqueued"]) == (True, 2)


async def _lost(proxy: Proxy, replies: int) -> bool:
    return proxy.lost >= replies


@pytest.mark.timeout(60)
async def test_a_connection_that_goes_silent_is_given_up(
    server: EmbeddedServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.store.connection.server.CALL_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(fetch, "FETCH_BLOCK_SECONDS", 0.5)
    ran: Counter[int] = Counter()
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        count = counting_queue(app, ran)
        direct = qbull.App(f"unix://:{server.password}@{server.socket}", prefix="test")
        other = counting_queue(direct, Counter())
        async with app.worker():
            await (await count.enqueue(n=0)).result(timeout=10)
            proxy.mood = "silent"
            job = await other.enqueue(n=1)
            await asyncio.sleep(1.5)
            proxy.mood = "fair"
            await job.result(timeout=10)
        await app.close()
        await direct.close()

    assert ran == {0: 1, 1: 1}


async def test_connections_that_are_cut_again_and_again_are_made_again(app: qbull.App, store: Store) -> None:
    ran: Counter[int] = Counter()
    count = counting_queue(app, ran)
    async with app.worker() as worker:
        for start in range(0, 1000, 100):
            jobs = asyncio.gather(*(count.enqueue(n=n) for n in range(start, start + 100)))
            await _repeatedly(
                lambda: store.server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), 2
            )
            await _repeatedly(lambda: store.server.call("CLIENT", "KILL", "TYPE", "pubsub"), 1)
            await jobs
        await worker.drain()

    assert set(ran) == set(range(1000))


async def test_a_server_that_was_emptied_is_used_again(app: qbull.App, store: Store) -> None:
    ran: Counter[int] = Counter()
    count = counting_queue(app, ran)
    async with app.worker():
        await (await count.enqueue(n=0)).result(timeout=10)

        await store.server.call("FLUSHALL")
        await store.server.call("SCRIPT", "FLUSH")
        await (await count.enqueue(n=1)).result(timeout=10)

    assert ran == {0: 1, 1: 1}


async def test_a_server_that_was_never_there_is_said_at_once(tmp_path: Path) -> None:
    app = qbull.App("redis://127.0.0.1:1/0")
    count = counting_queue(app, Counter())

    with pytest.raises(qbull.ServerAway, match=r"redis://127\.0\.0\.1:1/0: cannot be reached"):
        await count.enqueue(n=1)
    with pytest.raises(qbull.ServerAway):
        async with app.worker():
            pass
    await app.close()


async def _kill_server(app: qbull.App) -> None:
    os.kill(await _server_pid(app), signal.SIGKILL)


async def _server_pid(app: qbull.App) -> int:
    info = (await app._client().store.server.call("INFO", "server")).decode()
    return int(next(line.partition(":")[2] for line in info.splitlines() if line.startswith("process_id:")))


async def _has(ran: Counter[int], many: int) -> bool:
    return len(ran) >= many


async def _repeatedly(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        with suppress(ServerError):
            await call()  # type: ignore[misc]


async def test_no_job_is_run_twice_because_the_server_was_away_for_longer_than_workers_may_be_silent(
    app: qbull.App, caplog: pytest.LogCaptureFixture
) -> None:
    ran: Counter[int] = Counter()
    may_end = asyncio.Event()
    silence = 0.5

    @app.queue("work", concurrency=1).task
    async def linger(n: int) -> None:
        ran[n] += 1
        await may_end.wait()

    workers = [Worker(app._make_store, app._assignments(), min_idle=silence) for _ in range(3)]
    async with workers[0], workers[1], workers[2]:
        jobs = await linger.enqueue_many([{"n": n} for n in range(3)])
        await eventually(lambda: _has(ran, 3))
        pid = await _server_pid(app)
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3 * silence)
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: _all_live(app, 3))
        may_end.set()
        for job in jobs:
            await job.result(timeout=20)

    assert ran == {0: 1, 1: 1, 2: 1}
    assert "has fallen silent" not in caplog.text


async def _all_live(app: qbull.App, many: int) -> bool:
    return len(await app._client().store.workers()) == many


def test_refusals_that_take_turns_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    memory, rights = qbull.ServerRefused("out of memory"), qbull.ServerRefused("no rights")

    for error in (memory, rights) * 5:
        outage.failed(error, outage)

    assert caplog.messages == ["out of memory; it will be tried again", "no rights; it will be tried again"]


async def test_a_signal_that_comes_in_the_moment_in_which_the_server_is_reached_is_not_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    really_open = store.open

    async def open_and_be_signalled() -> None:
        await really_open()
        stop.set()

    monkeypatch.setattr(store, "open", open_and_be_signalled)

    assert await wait_for_server(store, Outage(), stop) is False
