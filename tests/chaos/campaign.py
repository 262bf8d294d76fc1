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
from campaign_app import BELLS, PARTITIONS
from checker import Checker, Found, Verdict
from fleet import Fleet, Member
from history import ACK, RUN, Book, words_in
from loads import transfers
from nemesis import PACES, SERVERS, Nemesis, Pace
from silence import Ears
from tested_servers import PROFILES, TestedServers, Topology, raised

import qbull
from conftest import every_fault, strays
from database import Postgres
from qbull.errors import NotFound, ServerError
from table import table
from topology import DURABLE

SHARINGS = ("auto", "auto", "leased", "static")


@dataclass
class Orders:
    topology: Topology = "single"
    seed: int = 1
    seconds: float = 60.0
    jobs: int = 0
    """It goes on until so many are acknowledged, and so many faults have struck."""
    faults: int = 0
    durability: str = ""
    pods: int = 3
    senders: int = 2
    database: bool = True
    only: tuple[str, ...] = ()
    """Kinds of faults, instead of those that the seed decides."""
    paces: tuple[Pace, ...] = PACES
    behind: int = 12_000
    """Unfinished jobs beyond which producers rest."""
    drain: float = 300.0
    """Seconds for everything to be worked off."""

    @property
    def profile(self) -> str:
        return self.durability or PROFILES[self.topology]

    @property
    def settings(self) -> str:
        """Of the servers: for "fast" no more than that asks for."""
        always, everysec = "appendfsync always", "appendfsync everysec"
        return DURABLE.replace(always, everysec) if self.profile == "fast" else DURABLE

    @property
    def command(self) -> str:
        more = f" JOBS={self.jobs} FAULTS={self.faults}" if self.jobs or self.faults else ""
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
    def __init__(self, orders: Orders, tested: TestedServers, directory: Path, database: str | None) -> None:
        self._orders = orders
        self._tested = tested
        self._directory = directory
        self._book = Book(directory / "faults.words")
        self._ears = Ears(directory, self._book)
        self._fleet = Fleet(directory, tested.url, orders.profile, database, orders.seed, orders.behind)
        self._sharing = random.Random(f"{orders.seed}-sharing").choice(SHARINGS)
        self._nemesis = Nemesis(
            tested, self._fleet, self._book, orders.seed, self._begun, orders.paces, orders.only
        )
        self._database = database
        self._left = ""
        self._app = qbull.App(tested.url, prefix="test")
        self._queues = {name: self._app.queue(name) for name in ("same", "bells")}
        for name in ("work", "transfers") if database else ("work",):
            self._queues[name] = self._app.queue(
                name, order="key"
            )  # or what is redriven would not wait its turn

    async def run(self) -> Outcome:
        self._fleet.assemble(self._orders.pods, self._orders.senders, self._sharing)
        duties = (self._tend, self._watch, self._listen, self._operate, self._tell)
        beside = [asyncio.create_task(each()) for each in duties]
        began = time.monotonic()
        try:
            for member in self._fleet.all:
                member.start()
            await self._under_way()
            until = time.monotonic() + self._orders.seconds
            await self._nemesis.rage(lambda: time.monotonic() > until and self._enough())
            await self._stop_producing()
            found = await self._worked_off()
            for task in beside:
                task.cancel()
            await self._stop(self._fleet.pods)
            self._ears.listen()
            await self._look(found)
            found.replicated = self._tested.servers is not None
            (self._directory / "found.json").write_bytes(msgspec.json.encode(found))  # for recheck.py
        finally:
            for task in beside:
                task.cancel()
            self._fleet.close()
            await self._app.close()
        verdict = Checker(self._directory, found, replicated=found.replicated).check()
        return Outcome(verdict, self._facts(time.monotonic() - began))

    def _enough(self) -> bool:
        return (
            self._acknowledged() >= self._orders.jobs and self._nemesis.counts.total() >= self._orders.faults
        )

    def _acknowledged(self) -> int:
        """Not quite: batches for later are smaller."""
        sizes = [path.stat().st_size for path in self._directory.glob("*.acks")]
        return sum(sizes) // ACK.size * 375

    def _begun(self) -> int:
        """About how many jobs were begun: of each there are two records, at least."""
        return sum(path.stat().st_size for path in self._directory.glob("*.runs")) // RUN.size // 2

    async def _tell(self) -> None:
        """How far it is, now and then."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(10)
            with suppress(ServerError):
                stats = await self._queues["work"].stats()
                print(
                    f"{time.monotonic() - began:.0f} s: {self._acknowledged():,} acknowledged, {self._nemesis.counts.total()} faults, "
                    f"{stats.unfinished} unfinished, {stats.failed} dead letters; {self._left}",
                    file=sys.stderr,
                )

    async def _under_way(self) -> None:
        """Faults begin when jobs are enqueued and done, and all schedules tick."""
        until = time.monotonic() + 120
        while not (any(self._directory.glob("*.acks")) and any(self._directory.glob("*.runs"))):
            assert time.monotonic() < until, "nothing was acknowledged and done"
            await asyncio.sleep(0.05)
        while not await self._rung_until():
            assert time.monotonic() < until, "not all schedules tick"
            await asyncio.sleep(0.05)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self._fleet.tend()

    async def _watch(self) -> None:
        """Write down when a partition has another primary."""
        store, last, before = self._app._client().store, None, time.monotonic_ns()
        bases = [store.names.partition("work", n) for n in range(PARTITIONS)]
        while True:
            at = time.monotonic_ns()
            with suppress(Exception):
                owners = await asyncio.to_thread(lambda: [self._tested.owner(base).port for base in bases])
                if owners != last:
                    self._book.say(owners=owners, before=before, since=time.monotonic_ns())
                    last = owners
                before = at
            await asyncio.sleep(0.25)

    async def _listen(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self._ears.listen()

    async def _operate(self) -> None:
        """Now and then the other system is mended, and what has failed because of it is sent round again."""
        while True:
            await asyncio.sleep(10)
            with suppress(ServerError):
                await self._redrive()
                await asyncio.sleep(2)
            (self._directory / "mended").unlink(missing_ok=True)

    async def _redrive(self) -> int:
        (self._directory / "mended").touch()
        queue = self._queues["work"]
        cursor = None
        while True:  # who became one because its workers died is written down
            page = await queue.search("failed", limit=500, cursor=cursor, error_contains="its worker died")
            if page.jobs:
                self._book.say(crashed=[job.id for job in page.jobs])
            if (cursor := page.next) is None:
                break
        redriven = await queue.redrive(error_contains="mended")
        redriven += await queue.redrive(error_contains="its worker died")
        for name, other in self._queues.items():
            if name != "work":
                redriven += await other.redrive()
        return redriven

    async def _stop_producing(self) -> None:
        await self._stop([*self._fleet.senders, *self._fleet.payers])

    async def _stop(self, members: list[Member]) -> None:
        for member in members:
            member.wanted = False
            member.send(signal.SIGTERM) if member in self._fleet.pods else _term(member)
        until = time.monotonic() + 90
        for member in members:
            while member.runs and time.monotonic() < until:
                await asyncio.sleep(0.05)
            assert not member.runs, f"{member.name} does not end; see {member.output}"

    async def _worked_off(self) -> Found:
        """Until nothing waits any more, and what was mended has been done."""
        found = Found(until=int(await asyncio.to_thread(self._server_time)))
        until = time.monotonic() + self._orders.drain
        while True:
            with suppress(ServerError):
                redriven = await self._redrive()
                left = {name: (await queue.stats()).unfinished for name, queue in self._queues.items()}
                found.unfinished = {name: n for name, n in left.items() if n}
                rung = await self._rung_until()
                self._left = f"left: {redriven} redriven, {found.unfinished}, rung {rung - found.until}"
                if (
                    not redriven
                    and not found.unfinished.keys() - {"bells"}
                    and rung > found.until
                    and self._shipped()
                ):
                    found.unfinished = {}
                    return found
            if time.monotonic() > until:
                return found
            await asyncio.sleep(0.5)

    async def _rung_until(self) -> int:
        """The last tick that every schedule has fired; the ones before it have ended, for each waits for the one before."""
        try:
            bells = [await self._app.schedules.get(f"bell-{n}") for n in range(BELLS)]
        except NotFound:  # lost with the server's memory; the workers declare them again
            return 0
        fired = [bell.last.planned_at for bell in bells if bell.last is not None]
        return min((int(at.timestamp()) for at in fired if at is not None), default=0)

    def _shipped(self) -> bool:
        if self._database is None:
            return True
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT count(*) FROM qbull_outbox").fetchone()
        return row == (0,)

    def _server_time(self) -> float:
        seconds, _ = self._tested.primaries()[0].tell("TIME")
        return float(seconds)

    async def _look(self, found: Found) -> None:
        """What the servers say when all is over."""
        store = self._app._client().store
        for name, queue in self._queues.items():
            found.completed[name] = (await queue.stats()).totals.get("completed", 0)
        cursor = None
        while True:
            page = await self._queues["work"].search("failed", limit=1000, cursor=cursor)
            found.failed += [job.id for job in page.jobs]
            if (cursor := page.next) is None:
                break
        words = words_in(self._book.path)
        found.crashed = sorted({id for word in words for id in word.get("crashed", ())})
        found.audit = await every_fault(store)
        found.leaked = await strays(store)
        if self._database:
            found.money = transfers.audit(self._database)

    def _facts(self, seconds: float) -> dict[str, str]:
        server = self._tested.nodes[0].info("server")
        kinds = [kind for line in self._nemesis.kinds for kind in sorted(set(line))]
        facts = {
            "topology": f"{self._orders.topology}, durability {self._orders.profile}, sharing {self._sharing}, "
            f"{self._orders.pods} pods of 2 processes, {self._orders.senders} producers, {seconds:.0f} s",
            "kinds of faults": ", ".join(kinds),
            "versions": f"qbull {qbull.__version__}, Python {platform.python_version()}, "
            f"{server.get('server_name', 'redis')} {server.get('valkey_version') or server['redis_version']}",
            "seed": str(self._orders.seed),
            "again": self._orders.command,
        }
        if self._nemesis.skipped:
            facts["left out"] = ", ".join(f"{kind} ({why})" for kind, why in self._nemesis.skipped.items())
        return facts


def _term(member: Member) -> None:
    if member.process is not None and member.runs:
        with suppress(ProcessLookupError):
            os.kill(member.process.pid, signal.SIGTERM)


@contextmanager
def _database(wanted: bool) -> Iterator[str | None]:
    if not wanted:
        yield None
        return
    server = Postgres().start()
    try:
        url = server.url(server.make_database())
        qbull.postgres.migrate(url)
        with psycopg.connect(url) as connection:
            connection.execute(transfers.CREATE.encode())
        yield url
    finally:
        server.remove()


def run(orders: Orders, directory: Path) -> Outcome:
    """All of it, in a directory of its own."""
    disks = "disk full" in SERVERS[orders.topology]
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
    parser.add_argument(
        "--only", default="", help="kinds of faults, separated by commas, instead of the seed's"
    )
    parser.add_argument("--no-database", action="store_true", help="without transfers through PostgreSQL")
    parser.add_argument("--keep", action="store_true", help="keep the histories, whatever they say")
    parser.add_argument("--pods", type=int, default=3)
    given = parser.parse_args()
    orders = Orders(
        given.topology, given.seed, given.minutes * 60, given.jobs, given.faults, given.durability, given.pods,
        database=not given.no_database,
        only=tuple(kind.strip() for kind in given.only.split(",") if kind.strip()),
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
