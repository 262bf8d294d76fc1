"""Every tick once: while worker processes are killed, with clocks that are wrong, through the death of a primary."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.crc import key_slot

import qbull
from conftest import eventually, every_fault
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.schedules import ScheduleStore
from topology import Node, raised_cluster, raised_trio

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("QBULL_CHAOS_SECONDS", "8"))
"""How long workers are killed; `make proofs` takes longer, with more schedules."""
EPOCH = datetime.fromtimestamp(0, UTC)


class TickingWorkers:
    """Worker processes that ring the bells; each is a `qbull worker` of its own, or stands under no parent."""

    def __init__(self, url: str, log: Path, schedules: int) -> None:
        self.log = log
        self.schedules = schedules
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "TICKING_APP_URL": url,
            "TICKING_APP_LOG": str(log),
            "TICKING_APP_SCHEDULES": str(schedules),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            "MIN_IDLE_TIME_MS": "1000",
        }

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        with self.log.with_suffix(".out").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "qbull.cli.main", "worker", "ticking_app:app"],
                    env={**self._environment, **(environment or {})},
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def kill(self, which: int) -> None:
        """The parent and its worker, at once: nobody is left to say what was running."""
        process = self._processes.pop(which)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        while self._processes:
            self.kill(0)

    def rung(self) -> list[tuple[int, int, str]]:
        """Schedule, planned second and job of each run, in the order of the runs."""
        if not self.log.exists():
            return []
        lines = [line.split(" ") for line in self.log.read_text().splitlines()]
        return [(int(bell), int(planned), id) for bell, planned, id, _ in lines]

    def faults(self, since: int, until: int) -> list[str]:
        """Ticks from `since` up to `until` that were missed, or had more than one job."""
        jobs: dict[tuple[int, int], set[str]] = {}
        for bell, planned, id in self.rung():
            jobs.setdefault((bell, planned), set()).add(id)
        ticks = [(bell, at) for bell in range(self.schedules) for at in range(since, until + 1)]
        missed = [f"{tick} was missed" for tick in ticks if tick not in jobs]
        return missed + [f"{tick} is {len(ids)} jobs" for tick, ids in jobs.items() if len(ids) > 1]


@asynccontextmanager
async def ticking_workers(url: str, log: Path, schedules: int) -> AsyncIterator[TickingWorkers]:
    workers = TickingWorkers(url, log, schedules)
    try:
        yield workers
    finally:
        workers.close()


@pytest.mark.timeout(180)
async def test_every_tick_once_while_workers_are_killed(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    luck, kills = random.Random(5), 0
    async with ticking_workers(server_url, tmp_path / "log", schedules=10 if SECONDS <= 8 else 50) as workers:
        for _ in range(3):
            workers.start()
        await eventually(lambda: _rung(workers, 20), within=60)
        since = max(planned for _, planned, _ in workers.rung()[:20]) + 1
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            await asyncio.sleep(luck.uniform(0.2, 0.8) * (1 if SECONDS <= 8 else 2))
            workers.kill(luck.randrange(3))
            workers.start()
            kills += 1
        until = int(await inspect.server_time(store))
        await eventually(lambda: _no_faults(workers, since, until), within=60)
        doubled = await _doubled(store)

    planned = workers.schedules * (until - since + 1)
    print(
        f"{kills} kills, {planned} ticks planned, {len(workers.faults(since, until))} missed, {len(doubled)} doubled"
    )
    assert workers.faults(since, until) == []
    assert doubled == []


@pytest.mark.timeout(120)
async def test_clocks_that_are_wrong_by_an_hour_change_nothing(
    store: Store, server_url: str, tmp_path: Path
) -> None:
    async with ticking_workers(server_url, tmp_path / "log", schedules=4) as workers:
        for skew in ("3600", "-3600"):
            workers.start({"TICKING_APP_SKEW": skew})
        await eventually(lambda: _rung(workers, 8), within=60)
        since = max(planned for _, planned, _ in workers.rung()[:8]) + 1
        await eventually(lambda: _rung(workers, 40), within=60)
        until = max(planned for _, planned, _ in workers.rung()) - 1
        await eventually(lambda: _no_faults(workers, since, until))
        now = await inspect.server_time(store)
        doubled = await _doubled(store)

    assert doubled == []
    assert all(abs(planned - now) < 120 for _, planned, _ in workers.rung())
    both = {line.rsplit(" ", 1)[1] for line in workers.log.read_text().splitlines()}
    assert len(both) == 2, "both of them had their share"


@pytest.mark.timeout(120)
async def test_every_tick_once_while_the_partitions_change(app: qbull.App) -> None:
    queue = app.queue("bells", partitions=2)
    ran: Counter[tuple[str | None, datetime | None]] = Counter()
    names, gap = [f"bell-{number}" for number in range(12)], timedelta(seconds=0.2)

    for name in names:

        @queue.cron(every=0.2, name=name, catch_up="all")
        async def ring() -> None:
            job = qbull.current_job()
            ran[job.schedule, job.planned_at] += 1

    def latest(name: str) -> datetime:
        return max((at for bell, at in ran if bell == name and at is not None), default=EPOCH)

    async def after(instant: datetime) -> bool:
        return all(latest(name) > instant for name in names)

    async with app.worker(), app.worker():
        await eventually(lambda: after(EPOCH), within=30)
        first = max(latest(name) for name in names)
        for count in (5, 3, 8):
            await queue.repartition(count)
            changed = datetime.now(UTC)
            await eventually(lambda at=changed: after(at + 3 * gap), within=40)
        last = min(latest(name) for name in names)
        ticks = [first + n * gap for n in range((last - first) // gap + 1)]

        async def all_ran() -> bool:  # one that is on its way to another partition may come after later ones
            return all((name, at) in ran for name in names for at in ticks)

        await eventually(all_ran)

    assert set(ran.values()) == {1}


@pytest.mark.timeout(120)
async def test_a_run_that_goes_on_is_known_although_the_partitions_change(app: qbull.App) -> None:
    queue = app.queue("bells", partitions=2)
    begun: list[str] = []
    go_on = asyncio.Event()

    @queue.cron(every=0.1, name="slow")
    async def slow() -> None:
        begun.append(qbull.current_job().id)
        await go_on.wait()

    async def skipped(times: int) -> bool:
        return (await app.schedules.get("slow")).skipped >= times

    async def again() -> bool:
        return len(begun) >= 3

    async with app.worker():
        await eventually(lambda: skipped(2))
        await queue.repartition(5)
        before = (await app.schedules.get("slow")).skipped
        await eventually(lambda: skipped(before + 15), within=40)
        assert len(begun) == 1
        go_on.set()
        await eventually(again)


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, Callable[[str], Node]]]:
    with raised_cluster(directory) as raised:
        yield raised.url, lambda base: raised.owner(key_slot(base.encode()))


@contextmanager
def sentinels(directory: Path) -> Iterator[tuple[str, Callable[[str], Node]]]:
    with raised_trio(directory) as raised:
        yield raised.url, lambda _: raised.master()


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("raise_up", [cluster, sentinels])
async def test_every_tick_once_although_a_primary_dies(raise_up: Callable, tmp_path: Path) -> None:
    with raise_up(tmp_path) as (url, primary_of):
        app = qbull.App(url, prefix="test")
        queue = app.queue("bells", partitions=6, keep=qbull.Keep(completed=100_000))
        ran: Counter[tuple[str, float]] = Counter()

        for name in "abcdefgh":

            @queue.cron(every=0.25, name=name, catch_up="all")
            async def ring() -> None:
                job = qbull.current_job()
                assert job.planned_at is not None and job.schedule is not None
                ran[job.schedule, job.planned_at.timestamp()] += 1

        async def after(instant: float) -> bool:
            return all(
                max((at for bell, at in ran if bell == name), default=0) > instant for name in "abcdefgh"
            )

        async with app.worker(), app.worker():
            await eventually(lambda: after(0), within=30)
            first = max(at for _, at in ran)
            await app._client().store.open()
            place = await ScheduleStore(app._client().store).location("a")
            assert place is not None
            victim = primary_of(app._client().store.names.partition(*place))
            victim.wait_for_replicas()  # what was fired is to be there after the failover
            victim.kill(signal.SIGKILL)
            died = time.time()
            await eventually(lambda: after(died + 2), within=90)
            last = min(max(at for bell, at in ran if bell == name) for name in "abcdefgh")

        ticks = [first + n * 0.25 for n in range(int((last - first) * 4) + 1)]
        assert [(name, at) for name in "abcdefgh" for at in ticks if (name, at) not in ran] == []
        assert (await queue.stats()).completed == len(ran)
        assert await every_fault(app._client().store) == []
        await app.close()


async def _rung(workers: TickingWorkers, times: int) -> bool:
    return len(workers.rung()) >= times


async def _no_faults(workers: TickingWorkers, since: int, until: int) -> bool:
    return not workers.faults(since, until)


async def _doubled(store: Store) -> list[str]:
    """Ids that are in more than one partition."""
    settings = await store.settings("bells")
    ids = [
        id
        for partition in await store.partitions(settings)
        for id in await store.server.call("HKEYS", partition.base + "index")
    ]
    return [id.decode() for id, count in Counter(ids).items() if count > 1]
