"""Two versions of the code serve a queue: a job goes to a worker whose code can run it, and keeps its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

import qbull
from conftest import eventually
from qbull.core.health import HealthLimits, find_problems
from qbull.core.parking import CodeNeed
from qbull.core.sharing import Sharing
from qbull.store.read.health import read_health
from qbull.store.read.inspect import server_time
from qbull.store.read.parked import parked_tasks
from qbull.store.store import Store
from qbull.worker.worker import Worker


class Version:
    """One version of the code: an app with a queue, and the calls that its workers have run."""

    def __init__(self, url: str, tasks: str, **settings: Any) -> None:
        self.app = qbull.App(url, prefix="test")
        self.queue = self.app.queue("shop", **settings)
        self.ran: list[Any] = []
        self.tasks = {name: self._declare(name) for name in tasks.split()}

    def _declare(self, name: str) -> Any:
        async def run(key: str, number: int = 0) -> None:
            assert qbull.current_job().attempt == 1
            self.ran.append((name, key, number))

        return self.queue.task(name=name, key="{key}")(run)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Any]:
        async with self.app.worker() as worker:
            yield worker


@pytest.fixture
async def versions(server_url: str, store: Store) -> AsyncIterator[Any]:
    made: list[Version] = []

    def make(tasks: str, **settings: Any) -> Version:
        made.append(Version(server_url, tasks, **settings))
        return made[-1]

    yield make
    for version in made:
        await version.app.close()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs whose arguments fit no live worker fail after half a second."""
    monkeypatch.setattr("qbull.worker.unpark.MISFIT_GRACE_SECONDS", 0.5)


async def test_a_worker_that_does_not_know_a_task_leaves_its_jobs_to_one_that_does(versions: Any) -> None:
    old, new = versions("pay"), versions("pay ship")

    async with old.worker(), new.worker():
        jobs = [await new.tasks["ship"].enqueue(f"k{n}", n) for n in range(40)]
        for job in jobs:
            await job.result(timeout=20)

    assert old.ran == []
    assert sorted(number for _, _, number in new.ran) == list(range(40))


async def test_a_job_that_nobody_knows_waits_without_an_attempt_until_its_code_comes(
    versions: Any, store: Store
) -> None:
    old, new = versions("pay"), versions("ship")

    async with old.worker() as worker:
        job = await new.tasks["ship"].enqueue("k")
        await eventually(lambda: is_parked(store, new))
        await worker.drain()
        info = await job.info()
        [waits] = await parked_tasks(store, new.queue.settings)
        why = await job.why()

    assert (info.state, info.attempt) == ("waiting", 1)
    assert (waits.task, waits.jobs, waits.job, waits.known) == ("ship", 1, job.id, False)
    assert [reason.code for reason in why.reasons] == ["no-task"]
    assert why.reasons[0].since == waits.since
    counts = await new.queue.stats()
    assert (counts.waiting, counts.delayed) == (1, 0)
    assert [found.id for found in await new.queue.jobs("waiting")] == [job.id]
    assert await new.queue.jobs("delayed") == []
    async with new.worker():
        await job.result(timeout=20)
    assert await parked_tasks(store, new.queue.settings) == []


async def test_a_key_stays_in_order_behind_a_job_that_is_parked_and_other_keys_go_on(
    versions: Any, store: Store
) -> None:
    old = versions("pay", order="key")
    both = versions("pay ship", order="key")

    for number, name in enumerate(["pay", "pay", "ship", "pay", "ship", "pay"]):
        await both.tasks[name].enqueue("a", number)
    async with old.worker():
        await eventually(lambda: is_parked(store, both))
        await old.tasks["pay"].options(key="b").enqueue("b", 9)
        await eventually(lambda: has_run(old, 3))
        assert sorted(old.ran) == [("pay", "a", 0), ("pay", "a", 1), ("pay", "b", 9)]
        [waits] = await parked_tasks(store, both.queue.settings)
        assert waits.jobs == 1
        ran = old.ran
        both.ran = ran
        async with both.worker():
            await eventually(lambda: has_run(both, 7))
    assert [number for _, key, number in ran if key == "a"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_parked_job_leaves_its_slot_in_a_lane_without_an_order(
    versions: Any, store: Store, limit: int
) -> None:
    old = versions("pay", lane=qbull.Lane(limit=limit))
    both = versions("pay ship", lane=qbull.Lane(limit=limit))
    for number in range(4):
        await both.tasks["ship"].enqueue("a", number)
    for number in range(10):
        await both.tasks["pay"].enqueue("a", number)

    async with old.worker():
        await eventually(lambda: has_run(old, 10))
        assert await is_parked(store, both, 4)
        async with both.worker():
            await eventually(lambda: has_run(both, 4))

    assert sorted(both.ran) == [("ship", "a", number) for number in range(4)]


async def test_a_parked_job_that_finds_its_lane_full_waits_at_the_head_of_it(
    versions: Any, store: Store, server_url: str
) -> None:
    old, go = versions("pay", lane=qbull.Lane(limit=1)), asyncio.Event()
    new = qbull.App(server_url, prefix="test")
    ran: list[str] = []
    queue = new.queue("shop", lane=qbull.Lane(limit=1))

    @queue.task(name="ship", key="{key}")
    async def ship(key: str, number: int = 0) -> None:
        ran.append("ship")

    @queue.task(name="hold", key="{key}")
    async def hold(key: str, name: str) -> None:
        ran.append(name)
        await go.wait()

    async with old.worker():
        parked = await ship.enqueue("a")
        await eventually(lambda: is_parked(store, old))
    for name in ("first", "second", "third"):
        await hold.enqueue("a", name)

    async with new.worker():

        async def waits_in_lane() -> bool:
            return ran == ["first"] and not await is_parked(store, old)

        await eventually(waits_in_lane)
        assert [reason.code for reason in (await parked.why()).reasons] == ["behind"]
        go.set()
        await eventually(lambda: has_all(ran, 4))
    await new.close()

    assert ran[:1] + sorted(ran[1:]) == ["first", "second", "ship", "third"]
    assert ran.index("ship") < 3


async def test_a_parked_job_can_be_cancelled_removed_and_expire(versions: Any, store: Store) -> None:
    old, new = versions("pay"), versions("ship")

    async with old.worker():
        cancelled = await new.tasks["ship"].enqueue("a")
        removed = await new.tasks["ship"].enqueue("b")
        expired = await new.tasks["ship"].options(expires=0.5).enqueue("c")
        await eventually(lambda: is_parked(store, new, 2))
        await cancelled.cancel()
        await removed.remove()
        with pytest.raises(qbull.JobCancelled, match="expired"):
            await expired.result(timeout=20)
        assert (await cancelled.info()).state == "cancelled"
        assert await removed.info() is None
        assert await parked_tasks(store, new.queue.settings) == []


async def test_arguments_that_do_not_fit_go_to_a_worker_whose_code_fits(
    versions: Any, store: Store, server_url: str
) -> None:
    old = versions("pay")
    new = qbull.App(server_url, prefix="test")
    ran = []

    @new.queue("shop").task(name="pay")
    async def pay(key: str, currency: str) -> None:
        ran.append((key, currency))

    async with old.worker(), new.worker():
        jobs = [await pay.enqueue(f"k{n}", currency="ARS") for n in range(20)]
        for job in jobs:
            await job.result(timeout=20)
    await new.close()

    assert sorted(ran) == sorted((f"k{n}", "ARS") for n in range(20))


async def test_arguments_that_fit_no_live_worker_fail_after_a_grace(
    versions: Any, store: Store, short_grace: None
) -> None:
    one, other = versions("pay"), versions("pay")

    async with one.worker(), other.worker():
        jobs = [await enqueue_unchecked(one, key="k", number="many") for _ in range(5)]
        for job in jobs:
            with pytest.raises(qbull.JobFailed, match="number: expected int, got str; no live worker"):
                await job.result(timeout=20)
        info = await jobs[0].info()

    assert info.finished_at - info.created_at >= timedelta(seconds=0.5)
    assert await parked_tasks(store, one.queue.settings) == []


async def test_a_worker_whose_code_fits_and_that_starts_within_the_grace_runs_the_job(
    versions: Any, store: Store, server_url: str
) -> None:
    """The job used to fail at once, although the deploy had only started with the caller."""
    old = versions("pay")
    new = qbull.App(server_url, prefix="test")

    @new.queue("shop").task(name="pay")
    async def pay(key: str, currency: str) -> str:
        return currency

    async with old.worker():
        job = await pay.enqueue("k", currency="ARS")
        await eventually(lambda: is_parked(store, old))
        async with new.worker():
            assert await job.result(timeout=20) == "ARS"
        info = await job.info()
    await new.close()

    assert info is not None and (info.attempt, info.history) == (1, ())


async def test_a_job_waits_while_the_workers_whose_code_fits_are_restarted(
    versions: Any, store: Store, server_url: str, short_grace: None
) -> None:
    """The grace used to count from the moment at which the job was parked. A job that had waited longer for a
    free slot of the new version failed as soon as its last worker was away for a moment.
    """
    old = versions("pay", partitions=1)
    new = qbull.App(server_url, prefix="test")

    @new.queue("shop", partitions=1).task(name="pay")
    async def pay(key: str, currency: str) -> str:
        return currency

    @old.queue.task(name="ship")
    async def ship(number: int) -> None: ...

    async with instance(old.app, 0):
        async with instance(new, 1):
            # It knows the task, but reads no partition.
            job = await pay.enqueue("k", currency="ARS")
            [parked] = await eventually(lambda: parked_tasks(store, old.queue.settings))
            await eventually(lambda: is_past(store, parked.since + timedelta(seconds=0.6)))
        mistake = await enqueue_unchecked(old, "ship", number="many")
        with pytest.raises(qbull.JobFailed, match="no live worker"):
            await mistake.result(timeout=20)
        assert (await job.info()).state == "waiting"
    async with instance(new, 0):
        assert await job.result(timeout=20) == "ARS"
    await new.close()


async def test_arguments_that_two_versions_refuse_fail_and_do_not_go_back_and_forth(
    versions: Any, server_url: str, short_grace: None
) -> None:
    old = versions("pay")
    new = qbull.App(server_url, prefix="test")

    @new.queue("shop").task(name="pay")
    async def pay(key: str, currency: str) -> None: ...

    async with old.worker(), new.worker():
        jobs = [await enqueue_unchecked(old, key="k", nothing=n) for n in range(10)]
        for job in jobs:
            with pytest.raises(qbull.JobFailed, match="no live worker of the queue has code that fits"):
                await job.result(timeout=20)
    await new.close()


def test_a_need_says_which_code_can_run_a_job() -> None:
    unknown, refused = CodeNeed("ship"), CodeNeed("ship", frozenset({"d1"}))

    assert [CodeNeed.unpack(need.pack()) for need in (unknown, refused)] == [unknown, refused]
    assert [need.is_met_by({"ship": "d1"}) for need in (unknown, refused)] == [True, False]
    assert refused.is_met_by({"ship": "d2"}) and not unknown.is_met_by({"pay": "d1"})
    assert refused.is_hopeless([{"ship": "d1"}, {"pay": "d2"}])
    assert not unknown.is_hopeless([])


async def test_health_names_a_task_that_nobody_knows(versions: Any, store: Store) -> None:
    old, new = versions("pay"), versions("pay ship")
    job = await new.tasks["ship"].enqueue("k", 1)

    async with old.worker():
        await eventually(lambda: is_parked(store, new))
        reading = await read_health(store, [old.queue.settings])

    [unknown] = reading.facts.queues[0].unknown
    assert (unknown.task, unknown.jobs) == ("ship", 1)
    [problem] = find_problems(reading.facts, HealthLimits(unread_after=0))
    assert (problem.kind, problem.task) == ("unknown", "ship")
    await job.cancel()


@asynccontextmanager
async def instance(app: qbull.App, number: int) -> AsyncIterator[None]:
    """A worker with static sharing, one of two."""
    sharing = Sharing("static", instance=number, instances=2)
    async with Worker(app._make_store, app._assignments(), sharing=sharing):
        yield


async def is_past(store: Store, time: datetime) -> bool:
    return await server_time(store) > time.timestamp()


async def enqueue_unchecked(version: Version, task: str = "pay", **arguments: Any) -> Any:
    """Enqueue from a program whose code of the task is another."""
    other = qbull.App(version.app.url, prefix="test")

    async def call(key: str = "k", number: Any = None, nothing: Any = None) -> None: ...

    job = await other.queue("shop").task(name=task)(call).enqueue(**arguments)
    await other.close()
    return version.queue.job(job.id)


async def is_parked(store: Store, version: Version, jobs: int = 1) -> bool:
    return sum(one.jobs for one in await parked_tasks(store, version.queue.settings)) >= jobs


async def has_all(ran: list[str], many: int) -> bool:
    await asyncio.sleep(0)
    return len(ran) >= many


async def has_run(version: Version, many: int) -> bool:
    await asyncio.sleep(0)
    return len(version.ran) >= many
