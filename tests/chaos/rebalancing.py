"""Rebalancing under faults: real worker processes join, leave and are killed while jobs of many keys come in; servers die where there are others.

The tests run one for every kind of sharing on every topology, and repartitioning_run.py one in which the partitions change.

What is judged: every job that was enqueued has had its effect, and the effects of each key came in order. Replication is
asynchronous, so before a server is killed producing rests until its replicas have what it acknowledged; what workers write
down meanwhile may be lost with it, and is then done again: in order, from where the new primary stands.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker_processes import Run, every, order_faults, runs

import qbull
from conftest import eventually, every_fault
from qbull.store.read.partition_report import partition_report
from topology import COMMON, Node, _die_with_parent, _running, raised_cluster, raised_trio, wait_for

PARTITIONS = 16
PODS = 4
PROCESSES = 2
JOB_SECONDS = 0.05
"""So long that nearly every key has a job that runs when a process is killed, and that processors are left for other tests."""
HARM = ("leave", "process", "pod")
SHARINGS = ("auto", "leased", "static")
HERE = Path(__file__).parent


@dataclass
class Site:
    """Where the run takes place. `lose_a_server` kills one that has a replica, None where there is none."""

    url: str
    primary: Callable[[], Node] | None = None
    whole: Callable[[], bool] = lambda: True

    async def lose_a_server(self, producing: asyncio.Lock) -> Node:
        assert self.primary is not None
        async with producing:
            victim = self.primary()
            await asyncio.to_thread(victim.wait_for_replicas)
            victim.kill(signal.SIGKILL)
        return victim

    async def bring_back(self, node: Node) -> None:
        node.start()
        await asyncio.to_thread(wait_for, lambda: node.answers() and self.whole(), 60.0)


@contextmanager
def single(directory: Path) -> Iterator[Site]:
    node = Node(directory / "single", COMMON)
    with _running([node]):
        yield Site(f"redis://:{node.password}@{node.place}/0")


@contextmanager
def cluster(directory: Path) -> Iterator[Site]:
    with raised_cluster(directory) as raised:
        yield Site(raised.url, lambda: random.choice(raised.primaries()), raised.is_whole)


@contextmanager
def sentinel(directory: Path) -> Iterator[Site]:
    with raised_trio(directory) as raised:
        yield Site(raised.url, raised.master, raised.is_whole)


TOPOLOGIES = {"single": single, "cluster": cluster, "sentinel": sentinel}


@dataclass
class Pods:
    """Places for PODS `qbull worker` processes, each of them running or not."""

    url: str
    log: Path
    sharing: str
    partitions: int = PARTITIONS
    places: list[subprocess.Popen[bytes] | None] = field(default_factory=lambda: [None] * PODS)

    def options(self, place: int) -> list[str]:
        match self.sharing:
            case "static":
                return ["--instance-id", f"worker-{place}", "--instance-count", str(PODS)]
            case "leased":  # so that three of the four are enough
                return ["--sharing", "leased", "--partitions-per-pod", str(PARTITIONS // (PODS - 1) + 1)]
        return []

    def join(self, place: int) -> None:
        environment = os.environ | {
            "LOGGING_APP_URL": self.url,
            "LOGGING_APP_LOG": str(self.log),
            "TOTAL_PARTITIONS": str(self.partitions),
            "MIN_IDLE_TIME_MS": "1500",
            "PYTHONPATH": os.pathsep.join([str(HERE.parent / "worker"), os.environ.get("PYTHONPATH", "")]),
        }
        command = ["worker", "logging_app:app", "--processes", str(PROCESSES), *self.options(place)]
        with self.log.with_suffix(f".pod{place}").open("ab") as output:
            self.places[place] = subprocess.Popen(
                [sys.executable, "-m", "qbull.cli.main", *command],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip

    async def leave(self, place: int) -> None:
        pod = self.places[place]
        assert pod is not None
        self.places[place] = None
        began = bool(_children(pod.pid))
        pod.terminate()
        code = await asyncio.to_thread(pod.wait, 60)
        assert code == 0 or not began, f"a pod that was told to stop ended with {code}"

    def kill(self, place: int) -> None:
        """As when a machine is gone: the parent and its children at once."""
        pod = self.places[place]
        assert pod is not None
        self.places[place] = None
        os.killpg(pod.pid, signal.SIGKILL)
        pod.wait()

    async def kill_a_process(self, place: int, luck: random.Random) -> None:
        """One of its children; it may have to be waited for."""

        async def children() -> list[int]:
            pod = self.places[place]
            assert pod is not None
            return _children(pod.pid)

        with suppress(ProcessLookupError):
            os.kill(luck.choice(await eventually(children, within=60)), signal.SIGKILL)

    def tend(self) -> None:
        """As a service manager does: start again what has ended by itself, because its server was away at the start."""
        for place, pod in enumerate(self.places):
            if pod is not None and pod.poll() is not None:
                self.join(place)

    def there(self) -> list[int]:
        return [place for place, pod in enumerate(self.places) if pod is not None]

    def close(self) -> None:
        for place in self.there():
            self.kill(place)


@dataclass
class Report:
    sharing: str
    topology: str
    jobs: int = 0
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lost: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    """Effects of a key that came before those of an earlier job, or without them."""
    backward: list[str] = field(default_factory=list)
    """Jobs that were done again after a later one of their key had been: only a failover may cause that."""
    again: int = 0
    failed: int = 0
    completed: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def row(self) -> str:
        kills = ", ".join(
            f"{self.kills[word]} {word}" for word in ("join", "leave", "process", "pod", "server")
        )
        return (
            f"{self.topology:<9} {self.sharing:<7} {self.jobs:>7} jobs in {self.seconds:5.1f} s; {kills}; "
            f"lost {len(self.lost)}, out of order {len(self.disorder)}, done again {self.again} "
            f"(after a later one: {len(self.backward)}), failed {self.failed}, audit {len(self.faults)}"
        )


class RebalancingRun:
    """`seconds` is how long faults come; then all places are filled and everything is worked off."""

    def __init__(
        self, site: Site, directory: Path, sharing: str, topology: str, *,
        seconds: float, seed: int, partitions: int = PARTITIONS,
    ) -> None:  # fmt: skip
        self._site = site
        self._seconds = seconds
        self._luck = random.Random(seed)
        self._pods = Pods(site.url, directory / "log", sharing, partitions)
        self._producing = asyncio.Lock()
        self._calm = False
        self._sent: dict[str, int] = {}
        self._leaving: list[asyncio.Task[None]] = []
        self.report = Report(sharing, topology)
        self._app = qbull.App(site.url, prefix="test")
        self._queue = self._app.queue("work", order="key", concurrency=10, partitions=partitions)
        self._step: Any = self._queue.task(key="{key}")(step)

    async def run(self, keys: int = 120) -> Report:
        began = time.monotonic()
        tending = every(0.2, self._pods.tend)
        running = [asyncio.create_task(self._produce(keys)), asyncio.create_task(self._harm())]
        if self._site.primary is not None:
            running.append(asyncio.create_task(self._lose_servers()))
        try:
            await asyncio.gather(*running)
            await asyncio.gather(*self._leaving)
            for place in set(range(PODS)) - set(self._pods.there()):
                self._join(place)
            await self._worked_off()
            for place in self._pods.there():
                await self._pods.leave(place)
            await self._judge()
        finally:
            for task in (tending, *running, *self._leaving):
                task.cancel()
            self._pods.close()
            await self._app.close()
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _produce(self, keys: int) -> None:
        """The next job of every key, again and again, but never thousands more than are done."""
        number = 0
        while not self._calm or number < 10:
            calls = [self._call(f"k{key}", number) for key in range(keys)]
            async with self._producing:
                await self._step.enqueue_many(calls)
            number += 1
            self._sent |= {call["key"]: number for call in calls}
            while (await self._queue.stats()).unfinished > 10 * keys and not self._calm:
                await asyncio.sleep(0.05)

    def _call(self, key: str, number: int) -> dict[str, Any]:
        failures = self._luck.choice((1, 2)) if self._luck.random() < 0.1 else 0
        return {"key": key, "number": number, "failures": failures, "seconds": JOB_SECONDS}

    async def _harm(self) -> None:
        """Each kind of harm comes again and again, in a new order every time."""
        until = time.monotonic() + self._seconds
        self._join(0)
        self._join(1)
        deck: list[str] = []
        while time.monotonic() < until or not all(self.report.kills[word] for word in HARM):
            await asyncio.sleep(self._luck.uniform(0.3, 1.0))
            if not deck:
                deck = ["join", "join", "leave", "process", "process", "pod"]
                self._luck.shuffle(deck)
            there = self._pods.there()
            absent = [place for place in range(PODS) if place not in there]
            word = "join" if len(there) < 2 else deck.pop()
            match word:
                case "join" if absent:
                    self._join(self._luck.choice(absent))
                case "leave":
                    self._count("leave")
                    self._leaving.append(asyncio.create_task(self._pods.leave(self._luck.choice(there))))
                case "process":
                    self._count("process")
                    await self._pods.kill_a_process(self._luck.choice(there), self._luck)
                case "pod":
                    self._count("pod")
                    self._pods.kill(self._luck.choice(there))
        self._calm = True

    async def _lose_servers(self) -> None:
        """One in the middle; in a longer run one every 20 seconds, each after the one before is back."""
        until = time.monotonic() + self._seconds
        await asyncio.sleep(self._seconds / 2 if self._seconds < 20 else 5)
        while True:
            victim = await self._site.lose_a_server(self._producing)
            self._count("server")
            if time.monotonic() + 20 > until:
                return
            await asyncio.sleep(8)
            await self._site.bring_back(victim)
            await asyncio.sleep(7)

    def _join(self, place: int) -> None:
        self._count("join")
        self._pods.join(place)

    def _count(self, word: str) -> None:
        self.report.kills[word] += 1

    async def _worked_off(self) -> None:
        async def empty() -> bool:
            return (await self._queue.stats()).unfinished == 0

        try:
            await eventually(empty, within=90)
        except AssertionError:
            found = await partition_report(self._app._client().store, self._queue.settings)
            stuck = [partition for partition in found.partitions if partition.counts.unfinished]
            said = "\n".join(map(str, [*stuck, *found.hot[:3], *found.warnings]))
            raise AssertionError(f"not worked off; see {self._pods.log.parent}\n{said}") from None

    async def _judge(self) -> None:
        ends = [run for run in runs(self._pods.log) if run.word == "end"]
        report = self.report
        report.jobs = sum(self._sent.values())
        had = {(run.key, run.number) for run in ends}
        report.lost = [
            f"{key} {n}" for key, sent in self._sent.items() for n in range(sent) if (key, n) not in had
        ]
        report.disorder = order_faults(first_times(ends))
        report.backward = order_faults(ends)
        report.again = len(ends) - len(had)
        stats = await self._queue.stats()
        report.failed, report.completed = stats.failed, stats.totals.get("completed", 0)
        report.faults = await every_fault(self._app._client().store)


def first_times(ends: list[Run]) -> list[Run]:
    seen: set[tuple[str, int]] = set()
    first = []
    for run in ends:
        if (run.key, run.number) not in seen:
            seen.add((run.key, run.number))
            first.append(run)
    return first


async def step(key: str, number: int, failures: int = 0, seconds: float = 0.0) -> None:
    """What the workers have is in logging_app.py."""


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
