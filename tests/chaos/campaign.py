"""A campaign: load on real servers, faults of every kind, then heal, work off and check.

    make chaos MINUTES=10 TOPOLOGY=single SEED=1        # or sentinel, cluster

The seed decides which kinds of faults there are, in which order and with which numbers. It does not decide what the machine
does meanwhile, so a run is repeated in kind, not step by step. The histories stay where a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psycopg
from campaign_app import ENOUGH_JOBS, ENOUGH_STEPS, LITTLE_BEHIND
from campaign_app import app as app_of_loads
from checker import Checker, Found, Verdict
from faults.connections import ConnectionFaults
from faults.processes import ProcessFaults
from faults.servers import SERVER_FAULTS, ServerFaults
from fleet import Fleet, Member
from history import Book
from job_plan import PARTITIONS
from loads import durable, transfers
from nemesis import PACES, Nemesis, Pace, spread_over
from operations import REPARTITIONED, Operations
from process_table import ORPHAN_SECONDS, OrphanWatch
from processor_time import ProcessorTime
from progress import Progress
from tested_servers import PROFILES, TestedServers, Topology, raised

import qbull
from database import Postgres
from qbull.errors import ServerError
from qbull.store.names import Names
from table import table
from topology import DURABLE

SHARINGS = ("auto", "auto", "leased", "static")


BEHIND = 12_000
"""Unfinished jobs of the sequences."""
MANY_DURABLE_PRODUCERS = 120
"""With 12, a campaign of a million jobs has an eighth of a million steps."""


@dataclass
class Orders:
    topology: Topology = "single"
    seed: int = 1
    seconds: float = 60.0
    jobs: int = 0
    """It goes on until so many are acknowledged, and so many faults have struck."""
    faults: int = 0
    steps: int = 0
    """And until so many steps of durable tasks have run; then there are more of these tasks."""
    durability: str = ""
    pods: int = 3
    senders: int = 2
    database: bool = True
    only: tuple[str, ...] = ()
    """Kinds of faults, instead of those that the seed decides."""
    loads: tuple[str, ...] = ()
    """The small loads; all of them if none is named."""
    paces: tuple[Pace, ...] = PACES
    behind: int = BEHIND
    """Unfinished jobs beyond which producers rest."""
    drain: float = 300.0
    """Seconds for everything to be worked off."""

    @property
    def profile(self) -> str:
        return self.durability or PROFILES[self.topology]

    @property
    def paces_of_faults(self) -> tuple[Pace, ...]:
        """Those of a campaign that goes on until it has had enough jobs are spread over all of it."""
        return spread_over(self.paces, self.jobs + self.steps, self.faults)

    @property
    def settings(self) -> str:
        """Of the servers: for "fast" no more than that asks for."""
        always, everysec = "appendfsync always", "appendfsync everysec"
        return DURABLE.replace(always, everysec) if self.profile == "fast" else DURABLE

    @property
    def command(self) -> str:
        more = f" JOBS={self.jobs} FAULTS={self.faults}" if self.jobs or self.faults else ""
        more += f" STEPS={self.steps}" if self.steps else ""
        more += f" DURABILITY={self.durability}" if self.durability else ""
        if self.only:
            more += f' ONLY="{", ".join(self.only)}"'
        return f"make chaos MINUTES={self.seconds / 60:g} TOPOLOGY={self.topology} SEED={self.seed}{more}"


@dataclass
class Outcome:
    verdict: Verdict
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return table(self.verdict, self.facts)


class Campaign:
    def __init__(
        self, orders: Orders, tested: TestedServers, directory: Path, database: Database | None
    ) -> None:
        self._orders = orders
        self._tested = tested
        self._directory = directory
        self._book = Book(directory / "faults.words")
        url = database.url if database else None
        self._fleet = Fleet(
            directory, tested.url, orders.profile, url, orders.seed, orders.behind, orders.loads
        )
        if orders.steps:
            self._fleet.durable_producers = MANY_DURABLE_PRODUCERS
        self._progress = Progress(directory)
        self._sharing = random.Random(f"{orders.seed}-sharing").choice(SHARINGS)
        self._fleet.assemble(orders.pods, orders.senders, self._sharing)
        self._app = qbull.App(tested.url, prefix="test")
        self._operations = Operations(self._app, directory, self._book, url, self._server_time)
        queues = {name: self._operations.queues[name] for name in REPARTITIONED}
        processes = ProcessFaults(self._fleet, database.server if database else None, queues)
        connections = ConnectionFaults(tested, self._fleet.processes)
        names = Names("test")
        self._bases = [names.partition("work", n) for n in range(PARTITIONS)]
        others = [
            names.partition(name, n)
            for name, queue in app_of_loads.queues.items()
            if name not in ("work", *REPARTITIONED)
            for n in range(queue.settings.partitions)
        ]
        servers = ServerFaults(tested, self._bases, others)
        self._nemesis = Nemesis(processes, connections, servers, self._book, orders.seed, self._work)
        self._nemesis.choose(orders.topology, orders.only)
        self._orphans = OrphanWatch(directory)
        self._processor_time = ProcessorTime()

    async def run(self) -> Outcome:
        duties = (self._tend, self._watch, self._operations.mend_now_and_then, self._tell)
        beside = [asyncio.create_task(each()) for each in duties]
        began = time.monotonic()
        interrupted = asyncio.Event()
        # SIGINT ends the faults early. All jobs are worked off and checked as ever.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
        try:
            for member in self._fleet.all:
                member.start()
            await self._under_way()
            until = time.monotonic() + self._orders.seconds
            await self._nemesis.rage(
                self._orders.paces_of_faults,
                lambda: interrupted.is_set() or (time.monotonic() > until and self._enough()),
            )
            loaded = time.monotonic() - began
            await self._stop([*self._fleet.senders, *self._fleet.payers])
            found = await self._operations.work_off(self._orders.drain)
            for task in beside:
                task.cancel()
            await self._stop(self._fleet.pods)
            await self._look_for_orphans(found)
            await self._operations.count(found)
            found.replicated = self._tested.servers is not None
            found.runs_ahead = self._orders.profile == "fast"
            found.outcomes_may_be_lost = self._orders.profile not in ("replicated", "strict")
            (self._directory / "found.json").write_bytes(msgspec.json.encode(found))  # for recheck.py
        finally:
            for task in beside:
                task.cancel()
            self._fleet.close()
            await self._app.close()
        verdict = Checker(self._directory, found).check()
        return Outcome(verdict, self._facts(time.monotonic() - began, verdict.jobs, loaded))

    def _enough(self) -> bool:
        return (
            self._progress.acknowledged >= self._orders.jobs
            and self._nemesis.counts.total() >= self._orders.faults
            and self._progress.steps >= self._orders.steps
        )

    def _say_what_is_enough(self) -> None:
        jobs = ENOUGH_JOBS, self._orders.jobs, self._progress.acknowledged
        steps = ENOUGH_STEPS, self._orders.steps, self._progress.steps
        for path, goal, there in (jobs, steps):
            if goal and there >= goal:
                (self._directory / path.name).touch()

    def _work(self) -> int:
        """Faults come the faster, the more of what is wanted gets done."""
        return self._progress.started + (self._progress.steps if self._orders.steps else 0)

    async def _tell(self) -> None:
        """How far it is, now and then, and how long the wanted jobs will take at this rate."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(10)
            await asyncio.to_thread(self._processor_time.look)
            seconds, jobs = time.monotonic() - began, self._progress.acknowledged
            rate = jobs / seconds
            left = (self._orders.jobs - jobs) / rate / 60 if rate and self._orders.jobs > jobs else 0
            more = f", {left:.0f} minutes more" if left else ""
            with suppress(ServerError):
                stats = await self._operations.queues["work"].stats()
                print(
                    f"{seconds:.0f} s: {jobs:,} acknowledged ({rate:,.0f} a second{more}), {self._nemesis.counts.total()} faults, "
                    f"{self._progress.steps:,} steps, {stats.unfinished} unfinished, {stats.failed} dead letters; "
                    f"{self._operations.left}",
                    file=sys.stderr,
                )

    async def _under_way(self) -> None:
        """Faults begin when jobs are enqueued and done, and all schedules tick."""
        until = time.monotonic() + 120
        while not (any(self._directory.glob("*.acks")) and any(self._directory.glob("*.runs"))):
            assert time.monotonic() < until, "nothing was acknowledged and done"
            await asyncio.sleep(0.05)
        while not await self._operations.rung_until():
            assert time.monotonic() < until, "not all schedules tick"
            await asyncio.sleep(0.05)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            self._fleet.tend()
            await asyncio.to_thread(self._progress.look)
            self._say_what_is_enough()
            await asyncio.to_thread(self._orphans.look, self._started())

    def _started(self) -> list[int]:
        return [member.process.pid for member in self._fleet.all if member.process is not None]

    async def _look_for_orphans(self, found: Found) -> None:
        """All members have ended, so whatever is left of them is one."""
        until = time.monotonic() + ORPHAN_SECONDS + 1
        while time.monotonic() < until:
            await asyncio.to_thread(self._orphans.look, self._started())
            await asyncio.sleep(0.25)
        found.orphans = [f"{pid}: {command}" for pid, command in self._orphans.found.items()]

    async def _watch(self) -> None:
        """Write down when a partition has another primary."""
        last, before = None, time.monotonic_ns()
        while True:
            at = time.monotonic_ns()
            with suppress(Exception):
                owners = await asyncio.to_thread(self._tested.owners, self._bases)
                if owners != last:
                    self._book.say(owners=owners, before=before, since=time.monotonic_ns())
                    last = owners
                before = at
            await asyncio.sleep(0.25)

    async def _stop(self, members: list[Member]) -> None:
        for member in members:
            member.wanted = False
            if member.process is not None and member.runs:
                with suppress(ProcessLookupError):
                    os.kill(member.process.pid, signal.SIGTERM)
        until = time.monotonic() + 90
        for member in members:
            while member.runs and time.monotonic() < until:
                await asyncio.sleep(0.05)
            assert not member.runs, f"{member.name} does not end; see {member.output}"

    def _server_time(self) -> float:
        seconds, _ = self._tested.primaries()[0].tell("TIME")
        return float(seconds)

    def _facts(self, seconds: float, jobs: int, loaded: float) -> dict[str, str]:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = (used.ru_utime + used.ru_stime) / max(jobs, 1)
        server = self._tested.nodes[0].info("server")
        kinds = [kind for line in self._nemesis.kinds for kind in sorted(set(line))]
        facts = {
            "topology": f"{self._orders.topology}, durability {self._orders.profile}, sharing {self._sharing}, "
            f"{self._orders.pods} pods of 2 processes, {self._orders.senders + 1} producers, {seconds:.0f} s",
            "rate": f"{jobs / loaded:,.0f} jobs a second, {cpu * 1000:.1f} ms of CPU for each, so that two cores need "
            f"{cpu * 1_000_000 / 2 / 60:.0f} minutes for a million",
            "processor time": str(self._processor_time),
            "kinds of faults": ", ".join(kinds),
            "versions": f"qbull {qbull.__version__}, Python {platform.python_version()}, "
            f"{server.get('server_name', 'redis')} {server.get('valkey_version') or server['redis_version']}",
            "seed": str(self._orders.seed),
            "again": self._orders.command,
        }
        if self._nemesis.skipped:
            facts["left out"] = ", ".join(f"{kind} ({why})" for kind, why in self._nemesis.skipped.items())
        return facts


@dataclass
class Database:
    server: Postgres
    url: str


@contextmanager
def _database(wanted: bool) -> Iterator[Database | None]:
    if not wanted:
        yield None
        return
    server = Postgres().start()
    try:
        url = server.url(server.make_database())
        qbull.postgres.migrate(url)
        with psycopg.connect(url) as connection:
            connection.execute((transfers.CREATE + durable.CREATE).encode())
        yield Database(server, url)
    finally:
        server.remove()


def run(orders: Orders, directory: Path) -> Outcome:
    """All of it, in a directory of its own."""
    disks = "disk full" in SERVER_FAULTS[orders.topology]
    history = directory / "history"
    history.mkdir(parents=True)
    with (
        raised(
            orders.topology, directory / "servers", orders.seed, settings=orders.settings, disks=disks
        ) as tested,
        _database(orders.database) as database,
    ):
        return asyncio.run(Campaign(orders, tested, history, database).run())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--topology", choices=list(PROFILES), default="single")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--durability", default="", help="instead of the one that the topology is for")
    parser.add_argument("--jobs", type=int, default=0, help="go on until so many jobs are acknowledged")
    parser.add_argument("--faults", type=int, default=0, help="and so many faults have struck")
    parser.add_argument("--steps", type=int, default=0, help="and so many steps of durable tasks have run")
    parser.add_argument(
        "--only", default="", help="kinds of faults, separated by commas, instead of the seed's"
    )
    parser.add_argument("--loads", default="", help="small loads, separated by commas, instead of all")
    parser.add_argument("--no-database", action="store_true", help="without transfers through PostgreSQL")
    parser.add_argument("--keep", action="store_true", help="keep the histories, whatever they say")
    parser.add_argument("--pods", type=int, default=3)
    given = parser.parse_args()
    orders = Orders(
        given.topology, given.seed, given.minutes * 60, given.jobs, given.faults, given.steps, given.durability, given.pods,
        database=not given.no_database,
        loads=tuple(load.strip() for load in given.loads.split(",") if load.strip()),
        only=tuple(kind.strip() for kind in given.only.split(",") if kind.strip()),
        behind=BEHIND if given.jobs or not given.steps else LITTLE_BEHIND,
    )  # fmt: skip
    directory = Path(tempfile.mkdtemp(prefix="qbull-chaos-"))
    outcome = run(orders, directory)
    print(outcome.table, flush=True)
    broken = outcome.verdict.broken()
    if broken or given.keep:
        print(f"histories: {directory / 'history'}")
    else:
        shutil.rmtree(directory)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
