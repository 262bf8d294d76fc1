"""A cluster beside one server, idle workers, and how fast workers share partitions.

`python -m bench --cluster` takes about ten minutes. The parts are "jobs" (what a job costs one server and three
primaries), "idle" (one worker with nothing to do, for five minutes with its sweeps), "many" (60 and 1,000 idle
workers) and "sharing" (how long partitions are unread when 100 workers join, leave and die). The last two use
simulated workers (simulated.py). Idle workers are measured beside them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.growth import Size, drained, fill, worker
from bench.server import Cluster, Counters, Server, open_cluster, open_server_on_loopback
from bench.shares import Shared, sharing_figures, watch
from bench.simulated import Crowd, SimulatedWorkers

PARTITIONS = 48
SAMPLE_SECONDS = 1.0
PROCESSES_GOAL = 60
PROCESSES_GOAL_PERCENT = 0.5
IDLE_GOAL_COMMANDS = 2
JOIN_GOAL_SECONDS = 2.0
LARGEST_CROWD = 500
"""Simulated workers in one process."""


@dataclass(frozen=True)
class ClusterPlan:
    """How much is measured."""

    smaller: int = 1
    idle_seconds: float = 300.0
    settle_seconds: float = 15.0
    many: tuple[tuple[int, int], ...] = ((60, 1), (60, 64), (300, 64), (1_000, 64))
    """Numbers of workers and of partitions."""
    many_seconds: float = 60.0
    sharing_workers: int = 100
    sharing_partitions: tuple[int, ...] = (64, 1_024)
    min_idle: float = 30.0

    @classmethod
    def quick(cls) -> ClusterPlan:
        return cls(200, 3.0, 1.0, ((4, 1), (8, 8)), 2.0, 6, (8, 16), 2.0)


@dataclass(frozen=True)
class Row:
    meaning: str
    unit: str
    value: float
    goal: float | None = None

    def figures(self) -> dict[str, Any]:
        verdict = None if self.goal is None else "ok" if self.value <= self.goal else "above"
        return {
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal,
            "verdict": verdict,
            "meaning": self.meaning,
        }


PARTS = ("jobs", "idle", "many", "sharing")
ORDERS = {
    "plain": (Size(100_000, 80_000, partitions=PARTITIONS), "without order"),
    "keyed": (Size(100_000, 80_000, keys=1_000, partitions=PARTITIONS), "by key"),
}
SERVERS: dict[str, Callable[[], Any]] = {"one": open_server_on_loopback, "cluster": open_cluster}


def measure_cluster(
    rounds: int, plan: ClusterPlan, say: Callable[[str], None], only: Sequence[str] = ()
) -> dict[str, Any]:
    """The rows by name, and the figures behind them."""
    parts = only or PARTS
    rows: dict[str, Row] = {}
    found: dict[str, Any] = {}

    def tell(new: Mapping[str, Row]) -> None:
        rows.update(new)
        for name, row in new.items():
            say(f"{name}: {row.value:,.3g} {row.unit}")

    if "jobs" in parts:
        found["jobs"] = {
            order: {
                where: _medians([job_figures(opener, size, plan) for _ in range(rounds)])
                for where, opener in SERVERS.items()
            }
            for order, (size, _) in ORDERS.items()
        }
        tell(job_rows(found["jobs"]))
    enough = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        try:
            idle = beside.submit(measure_idle, plan, enough) if "idle" in parts else None
            for workers, partitions in plan.many if "many" in parts else ():
                with _told(say, f"{workers} workers"):
                    figures = many_figures(workers, partitions, plan)
                    found.setdefault("many", {}).setdefault(str(partitions), {})[str(workers)] = figures
                    tell(many_rows(workers, partitions, figures))
            for partitions in plan.sharing_partitions if "sharing" in parts else ():
                with _told(say, f"{partitions} partitions"):
                    figures = sharing_figures(plan.sharing_workers, partitions, plan.min_idle)
                    found.setdefault("sharing", {})[str(partitions)] = figures
                    tell(sharing_rows(partitions, plan, figures))
            if idle is not None:
                found["idle"] = idle.result()
                tell(idle_rows(found["idle"]))
        finally:
            enough.set()
    return {"rows": {name: row.figures() for name, row in rows.items()}, **found}


def job_figures(opener: Callable[[], Any], size: Size, plan: ClusterPlan) -> dict[str, float]:
    """What one job costs, from the enqueue to its end. Processor time in microseconds, the rest in bytes."""
    size = size.smaller(plan.smaller)
    with opener() as server:
        before, own = server.counters(), time.process_time()
        asyncio.run(fill(server.url, size))
        filled, own = server.counters().since(before), time.process_time() - own

        def look(pid: int) -> tuple[Counters, float]:
            return server.counters(), _cpu_seconds(pid)

        (first, worker_began), (last, worker_ended), jobs = drained(server, size, look)
    ran = last.since(first)
    return {
        "enqueue_server_us": filled.cpu_seconds / size.jobs * 1e6,
        "enqueue_client_us": own / size.jobs * 1e6,
        "waiting_bytes": filled.memory_bytes / size.jobs,
        "run_server_us": ran.cpu_seconds / jobs * 1e6,
        "run_commands_sent": ran.sent / jobs,
        "run_worker_us": (worker_ended - worker_began) / jobs * 1e6,
        "to_server_bytes": filled.received_bytes / size.jobs + ran.received_bytes / jobs,
        "from_server_bytes": filled.sent_bytes / size.jobs + ran.sent_bytes / jobs,
        "log_bytes": filled.log_bytes / size.jobs + ran.log_bytes / jobs,
    }


def job_rows(jobs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Row]:
    rows = {}
    for order, (_, words) in ORDERS.items():
        one, cluster = (jobs[order][where]["run_server_us"] for where in SERVERS)
        rows |= {
            f"{order}_one_us": Row(
                f"one server, {PARTITIONS} partitions, {words}: for a drained job", "us", one
            ),
            f"{order}_cluster_us": Row("the same on a cluster, all three primaries together", "us", cluster),
            f"{order}_cluster": Row(f"the cluster beside one server, {words}", "ratio", cluster / one, 1.1),
        }
    return rows


def measure_idle(plan: ClusterPlan, enough: threading.Event) -> dict[str, dict[str, Any]]:
    """What the servers count while one worker has nothing to do, side by side for three workers."""
    sizes = {
        "idle_1": (open_server_on_loopback, Size(0, 0, partitions=1)),
        "idle_64": (open_server_on_loopback, Size(0, 0, partitions=64)),
        "idle_64_cluster": (open_cluster, Size(0, 0, partitions=64)),
    }
    with ExitStack() as stack:
        servers = {name: stack.enter_context(opener()) for name, (opener, _) in sizes.items()}
        clients = {name: server.counters().clients for name, server in servers.items()}
        for name, (_, size) in sizes.items():
            stack.enter_context(worker(servers[name], size))
        enough.wait(plan.settle_seconds)  # what it does once, after its start, is not idling
        calls = {name: server.calls() for name, server in servers.items()}
        samples = {name: [_sample(server)] for name, server in servers.items()}
        until = time.monotonic() + plan.idle_seconds
        while time.monotonic() < until and not enough.wait(SAMPLE_SECONDS):
            for name, server in servers.items():
                samples[name].append(_sample(server))
        return {
            name: _idle_figures(server, samples[name], calls[name], clients[name])
            for name, server in servers.items()
        }


Sample = tuple[float, Counters]


def _sample(server: Server | Cluster) -> Sample:
    return time.monotonic(), server.counters()


def _idle_figures(
    server: Server | Cluster, samples: Sequence[Sample], calls: Mapping[str, int], clients: int
) -> dict[str, Any]:
    asked = len(server.nodes)  # commands of each sample

    def rate(first: Sample, last: Sample, samples: int = 1) -> float:
        return (last[1].commands - first[1].commands - asked * samples) / (last[0] - first[0])

    seconds = samples[-1][0] - samples[0][0]
    counted = samples[-1][1].since(samples[0][1])
    looks = len(samples) - 1
    now = server.calls()
    return {
        "seconds": seconds,
        "commands_per_s": rate(samples[0], samples[-1], looks),
        "sent_per_s": (counted.sent - asked * looks) / seconds,
        "busiest_second": max(rate(*pair) for pair in pairwise(samples)),
        "bytes_per_s": (counted.received_bytes + counted.sent_bytes) / seconds,
        "connections": samples[-1][1].clients - clients,
        "calls_per_s": {
            name: (count - calls.get(name, 0)) / seconds
            for name, count in sorted(now.items())
            if count > calls.get(name, 0) and name != "info"
        },
    }


def idle_rows(idle: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    words = {
        "idle_1": "an idle worker, commands inside scripts too",
        "idle_64": "the same with 64 partitions, sweeps too",
        "idle_64_cluster": "the same on a cluster",
    }
    rows = {}
    for name, found in idle.items():
        rows[name] = Row(words[name], "cmd/s", found["commands_per_s"], IDLE_GOAL_COMMANDS)
        rows[f"{name}_sent"] = Row("sent by it", "cmd/s", found["sent_per_s"], IDLE_GOAL_COMMANDS)
        rows[f"{name}_peak"] = Row("in its busiest second", "cmd/s", found["busiest_second"])
    return rows


def many_figures(workers: int, partitions: int, plan: ClusterPlan) -> dict[str, float]:
    """What many idle workers cost one server, for a minute, in which each of them sweeps once."""
    with open_server_on_loopback() as server, ExitStack() as stack:
        memory = server.memory()
        crowds = [
            stack.enter_context(SimulatedWorkers(server.url, Crowd(f"crowd{start}", some, partitions)))
            for start in range(0, workers, LARGEST_CROWD)
            if (some := min(LARGEST_CROWD, workers - start))
        ]
        for crowd in crowds:
            crowd.wait_until_ready()
        watched = watch(server.url, partitions, Shared(("crowd",), workers, even=True))
        time.sleep(plan.settle_seconds)
        began, before = _sample(server)
        time.sleep(plan.many_seconds)
        ended, after = _sample(server)
        counted, seconds = after.since(before), ended - began
    return {
        "commands_per_s": (counted.commands - 1) / seconds,
        "sent_per_s": (counted.sent - 1) / seconds,
        "server_percent": counted.cpu_seconds / seconds * 100,
        "bytes_per_s": (counted.received_bytes + counted.sent_bytes) / seconds,
        "connections": after.clients - 1,
        "server_bytes_each": (after.memory_bytes - memory) / workers,
        "even_seconds": watched.seconds,
    }


def many_rows(workers: int, partitions: int, found: Mapping[str, float]) -> dict[str, Row]:
    goal = PROCESSES_GOAL_PERCENT * workers / PROCESSES_GOAL
    words = (
        f"{workers:,} idle workers, {'one partition' if partitions == 1 else f'{partitions:,} partitions'}"
    )
    name = f"many_{workers}_{partitions}"
    return {
        f"{name}_cmd": Row(words, "cmd/s", found["commands_per_s"]),
        f"{name}_cpu": Row("the server meanwhile, of one core", "%", found["server_percent"], goal),
    }


def sharing_rows(partitions: int, plan: ClusterPlan, found: Mapping[str, float]) -> dict[str, Row]:
    many, start = f"{plan.sharing_workers} workers", f"{partitions:,} partitions:"
    return {
        f"join_{partitions}_s": Row(
            f"{start} {many} join, until shares are even", "s", found["join_seconds"], JOIN_GOAL_SECONDS
        ),
        f"join_{partitions}_gap_s": Row(
            "the longest time without a reader", "s", found["join_unread_seconds"]
        ),
        f"leave_{partitions}_s": Row(
            f"{start} {many} leave, until shares are even", "s", found["leave_seconds"]
        ),
        f"leave_{partitions}_gap_s": Row(
            "the longest time without a reader", "s", found["leave_unread_seconds"]
        ),
        f"die_{partitions}_s": Row(
            f"{start} {many} die; {plan.min_idle:g} s of it are MIN_IDLE_TIME_MS", "s", found["die_seconds"]
        ),
    }


@contextmanager
def _told(say: Callable[[str], None], what: str) -> Iterator[None]:
    """A measurement that fails or takes too long has no rows, and the others go on."""
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        say(f"{what}: {error}")


def _medians(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(one[name] for one in figures) for name in figures[0]}


def _cpu_seconds(pid: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
