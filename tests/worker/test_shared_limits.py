"""A shared limit over real processes that are killed: never exceeded, almost fully used, no slot lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import limited_app
import pytest
from limit_windows import heaviest_window

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs import shared_limits
from qbull.store.verbs.shared_limits import LimitCall, LimitGrant, LimitRequest
from qbull.worker.limited_jobs import LimitedJobs
from qbull.worker.process.reclaimer import Reclaimer
from qbull.worker.shared_limits import LimitStart
from topology import raised_cluster

SECONDS = float(os.environ.get("QBULL_SHARED_LIMITS_SECONDS", "16"))
"""For how long the limit is watched. `QBULL_SHARED_LIMITS_SECONDS=600` is the long form, for a quiet machine."""
USED_SHARE = 0.95 if "QBULL_SHARED_LIMITS_SECONDS" in os.environ else 0.75
"""Beside other tests, a worker that takes the place of a killed one needs long to start, and uses nothing meanwhile."""


class Start(NamedTuple):
    at: float
    weight: int


class Host:
    """`qbull worker` with two processes."""

    def __init__(self, url: str, log: Path) -> None:
        environment = os.environ | {
            "LIMITED_APP_URL": url,
            "LIMITED_APP_LOG": str(log),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        }
        self._log = log
        command = [sys.executable, "-m", "qbull.cli.main", "worker", "limited_app:app", "--processes", "2"]
        with log.with_suffix(".out").open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill_a_worker(self) -> None:
        if children := self.children():
            self.kill(random.choice(children))

    def kill(self, child: int) -> None:
        """Kill a process, and note it in the log behind everything that the process wrote."""
        os.kill(child, signal.SIGKILL)
        while state_of(child) not in "ZX":
            time.sleep(0.001)
        with self._log.open("a") as lines:
            lines.write(f"killed - 0 {time.time()} {child}\n")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


def state_of(pid: int) -> str:
    """The state of a process, as /proc tells it; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    monkeypatch.setattr(limited_app.app, "url", server_url)
    yield tmp_path / "log"
    await limited_app.app.close()


@asynccontextmanager
async def two_hosts(url: str, log: Path, store: Store) -> AsyncIterator[list[Host]]:
    hosts = [Host(url, log) for _ in range(2)]

    async def four_workers() -> bool:
        return len(await store.workers()) >= 4

    try:
        await eventually(four_workers, within=90)
        yield hosts
    finally:
        for host in hosts:
            await asyncio.to_thread(host.stop)


def starts_in(log: Path) -> list[Start]:
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines()]
    return [Start(float(at), int(weight)) for word, _, weight, at, _ in lines if word == "begin"]


def most_running(log: Path) -> int:
    """The most jobs at a time. Jobs end with their process too."""
    running: dict[str, str] = {}
    most = 0
    for line in log.read_text().splitlines():
        word, job, _, _, process = line.split()
        running.pop(job, None)
        if word == "killed":
            running = {job: by for job, by in running.items() if by != process}
        if word == "begin":
            running[job] = process
        most = max(most, len(running))
    return most


async def enqueue_some(weight: int) -> None:
    """Enqueue jobs of about so much weight in all, a third in each queue."""
    await limited_app.answer.enqueue_many([{}] * (weight // 6))
    await limited_app.summarise.enqueue_many([{"tokens": 1 + n % 6} for n in range(weight // 10)])
    await limited_app.scan_pages.enqueue_many([{"pages": 1 + n % 3} for n in range(weight // 6)])


@pytest.mark.timeout(SECONDS + 180)
async def test_a_limit_holds_over_queues_and_workers_that_are_killed(
    log: Path, server_url: str, store: Store
) -> None:
    rate = limited_app.RATE
    windows = int(SECONDS / rate.per)
    async with two_hosts(server_url, log, store) as hosts:
        await enqueue_some(int(rate.count * (windows + 4)))

        async def one_started() -> bool:
            return bool(starts_in(log))

        await eventually(one_started, within=30)
        until = time.monotonic() + SECONDS + rate.per
        while time.monotonic() < until:
            await asyncio.sleep(min(3.0, max(until - time.monotonic(), 0)))
            if time.monotonic() < until:
                random.choice(hosts).kill_a_worker()
        await limited_app.app.close()

    starts = starts_in(log)
    first = starts[0].at
    used = sum(start.weight for start in starts if start.at < first + windows * rate.per)
    share = used / (windows * rate.count)
    print(f"{len(starts)} starts, {share:.3f} of the limit used, {most_running(log)} at a time")
    assert heaviest_window(rate.per, [(start.at, start.weight) for start in starts]) <= rate.count
    assert share >= USED_SHARE
    assert most_running(log) <= 40


async def test_the_slots_of_a_killed_worker_come_back(log: Path, server_url: str, store: Store) -> None:
    """All four workers die in the middle of their jobs. Their slots must not stay in use for ever."""
    async with two_hosts(server_url, log, store) as hosts:
        await shared_limits.change(store, "openai", {"concurrency": 2}, "ann")
        jobs = [await limited_app.doze.enqueue(0.4) for _ in range(8)]

        async def two_started() -> bool:
            return len(starts_in(log)) >= 2

        await eventually(two_started, within=30)
        for host in hosts:
            for child in host.children():
                host.kill(child)
        for job in jobs:
            await job.result(timeout=60)

        async def all_free() -> bool:
            return (await shared_limits.usage(store, "openai")).status.running == 0

        await eventually(all_free)
        await limited_app.app.close()
    assert most_running(log) == 2


async def asks(store: Store, worker: str, weight: int = 1) -> bool:
    """Whether a worker gets a start of the limit "scraper"."""
    call = LimitCall(token_hex(8), worker, {}, [LimitRequest("", weight, "5")])
    return isinstance((await shared_limits.acquire(store, "scraper", call))[0], LimitGrant)


async def leave(store: Store, *workers: str) -> None:
    await shared_limits.free_slots(store, "scraper", workers)


async def test_workers_that_ask_within_a_millisecond_wait_in_that_order(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("scraper", concurrency=1))
    waiting = [f"w{number}" for number in reversed(range(20))]
    assert await asks(store, "first")
    for worker in waiting:
        assert not await asks(store, worker)

    await leave(store, "first")
    while waiting:
        first, *waiting = waiting
        assert [worker for worker in (*waiting, first) if await asks(store, worker)] == [first]
        await leave(store, first)


async def test_nobody_waits_behind_a_worker_that_is_gone(store: Store) -> None:
    """It has no slot, only its place in the line."""
    await shared_limits.declare(store, qbull.Limit("scraper", rate=qbull.Rate(10, per=60)))

    assert await asks(store, "first", 8)
    assert not await asks(store, "killed", 6)
    assert not await asks(store, "next", 2)

    await Reclaimer(store, [], 30.0).reclaim("killed")

    assert await asks(store, "next", 2)
    await leave(store, "first", "next")


async def test_a_worker_that_was_thought_dead_waits_in_line_again(store: Store) -> None:
    await shared_limits.declare(store, qbull.Limit("scraper", rate=qbull.Rate(10, per=60)))

    assert await asks(store, "first", 8)
    await leave(store, "frozen")

    assert not await asks(store, "frozen", 6)
    assert not await asks(store, "next", 2)
    await leave(store, "first")


async def test_the_slots_of_a_reclaimed_worker_are_free_at_once(app: qbull.App, store: Store) -> None:
    """The sweep frees them too, but only later."""
    limit = qbull.Limit("scraper", concurrency=1)
    queue = app.queue("work")
    await shared_limits.declare(store, limit)
    await shared_limits.acquire(store, "scraper", LimitCall("t1", "killed", {}, [LimitRequest("", 1, "5")]))
    assert (await shared_limits.usage(store, "scraper")).status.running == 1

    await Reclaimer(store, [queue.settings], 30.0).reclaim("killed")

    assert (await shared_limits.usage(store, "scraper")).status.running == 0


async def test_slots_of_a_worker_that_nobody_knows_are_freed(app: qbull.App, store: Store) -> None:
    """Its registry entry is gone, for example because the process that buried it died before the end."""
    limit = qbull.Limit("scraper", concurrency=1)
    queue = app.queue("work")

    @queue.task(limit=limit)
    async def visit() -> str:
        return "seen"

    await shared_limits.declare(store, limit)
    request = LimitRequest("", 1, "5")
    await shared_limits.acquire(store, "scraper", LimitCall("t1", "ghost", {}, [request]))
    async with app.worker():
        job = await visit.enqueue()
        await Reclaimer(store, [queue.settings], 30.0).sweep(set(await store.workers()))
        assert await job.result(timeout=20) == "seen"


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_a_limit_holds_on_a_cluster(tmp_path: Path) -> None:
    starts: list[tuple[float, int]] = []
    with raised_cluster(tmp_path) as raised:
        app = qbull.App(raised.url, prefix="test")
        limit = qbull.Limit("api", rate=qbull.Rate(40, per=1), concurrency=5)
        one, two = app.queue("one", partitions=6, limit=limit), app.queue("two", partitions=3, limit=limit)

        async def step() -> None:
            starts.append((time.monotonic(), 1))

        for task in (one.task(step), two.task(step)):
            await task.enqueue_many([{}] * 50)
        async with app.worker() as first, app.worker():
            await first.drain()
        await app.close()

    assert len(starts) == 100
    assert heaviest_window(1.0, starts) <= 40


async def test_a_worker_that_stops_leaves_no_slot_and_no_job_behind(app: qbull.App, store: Store) -> None:
    limit = qbull.Limit("api", rate=qbull.Rate(5, per=60), concurrency=3)
    queue = app.queue("work", limit=limit)

    @queue.task
    async def step() -> None: ...

    await step.enqueue_many([{}] * 12)
    async with app.worker():

        async def five_done() -> bool:
            return (await queue.stats()).completed == 5

        await eventually(five_done)
    counts = await queue.stats()
    assert (counts.completed, counts.waiting, counts.active) == (5, 7, 0)
    assert (await shared_limits.usage(store, "api")).status.running == 0


async def test_jobs_that_wait_for_a_limit_can_be_cancelled(app: qbull.App) -> None:
    queue = app.queue("work", limit=qbull.Limit("api", daily=1))

    @queue.task
    async def step() -> None: ...

    async with app.worker():
        jobs = [await step.enqueue() for _ in range(3)]

        async def one_done() -> bool:
            return (await queue.stats()).completed == 1

        await eventually(one_done)
        for job in jobs:
            if await job.state() == "waiting":
                await job.cancel()
        assert (await queue.stats()).cancelled == 2


async def test_a_job_that_is_too_heavy_waits_and_others_pass(
    app: qbull.App, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    limit = qbull.Limit("api", rate=qbull.Rate(10, per=0.2))
    queue = app.queue("work", limit=limit.use(weight="weight"))

    @queue.task
    async def step(weight: int) -> int:
        return weight

    async with app.worker():
        heavy = await step.enqueue(11)
        light = [await step.enqueue(3) for _ in range(6)]
        assert [await job.result(timeout=20) for job in light] == [3] * 6
        assert await heavy.state() == "waiting"
        assert 'weighs 11, more than limit "api" allows at all' in caplog.text
        await shared_limits.change(store, "api", {"rate": qbull.Rate(11, per=0.2)}, "ann")
        assert await heavy.result(timeout=20) == 11


async def test_a_function_that_outlives_its_timeout_keeps_its_slot(app: qbull.App, store: Store) -> None:
    queue = app.queue("work", limit=qbull.Limit("api", concurrency=1), retry=qbull.Retry(attempts=1))
    over = threading.Event()

    @queue.task(timeout=0.1)
    def hang() -> None:
        over.wait(20)

    @queue.task
    async def quick() -> str:
        return "ran"

    async with app.worker():
        await hang.enqueue()

        async def failed() -> bool:
            return (await queue.stats()).failed == 1

        await eventually(failed)
        job = await quick.enqueue()
        await asyncio.sleep(0.3)
        assert await job.state() == "waiting"
        over.set()
        assert await job.result(timeout=20) == "ran"


async def test_an_ordered_lane_keeps_its_order_under_a_limit(app: qbull.App) -> None:
    ran: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    limit = qbull.Limit("api", rate=qbull.Rate(10, per=0.2))
    queue = app.queue("work", order="key", partitions=2, limit=limit)

    @queue.task(key="{key}")
    async def step(key: str, number: int) -> None:
        ran[key].append(number)

    await step.enqueue_many([{"key": key, "number": n} for n in range(20) for key in ran])
    async with app.worker() as worker, app.worker():
        await worker.drain()
    assert ran == {key: list(range(20)) for key in ran}


async def test_a_start_that_has_expired_is_not_used(app: qbull.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop stands still between the grant and the start."""
    queue = app.queue("work", limit=qbull.Limit("api", rate=qbull.Rate(1, per=1)))
    granted: list[float] = []
    began: list[float] = []
    take = LimitedJobs.take

    async def slowly(self: LimitedJobs, *args: Any, **kwargs: Any) -> list[LimitStart]:
        starts = await take(self, *args, **kwargs)
        granted.append(starts[0].grant.latest)
        if len(granted) == 1:
            time.sleep(0.2)
        return starts

    monkeypatch.setattr(LimitedJobs, "take", slowly)

    @queue.task
    async def step() -> None:
        began.append(time.monotonic())

    async with app.worker():
        await (await step.enqueue()).result(timeout=20)
    assert len(granted) > 1
    assert began[0] <= granted[-1]
