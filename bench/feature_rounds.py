"""Measure the rows of bench/features.py, each right after the row that it is compared with.

The clock of a drain runs from the first job that is gone to the last one, so starting up is not measured.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import redis

from bench import measure
from bench.contestant import Call
from bench.features import FEATURES, PREFIX, Feature
from bench.floor import Floor
from bench.quiet import DISTURBED, Watch
from bench.server import Server, open_replicated_server
from qbull import Task
from qbull.store.names import Names

TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.002
CALLERS = 50


@dataclass
class FeatureRun:
    """The rates of every row, one for each round, and of the row beside it."""

    server: Server
    jobs: int
    rounds: int
    say: Callable[[str], None]
    only: Sequence[str] = ()
    rates: dict[str, list[float]] = field(default_factory=dict)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    wait_ms: dict[str, list[float]] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)

    def all(self) -> None:
        with open_replicated_server() as replicated:
            for number in range(self.rounds):
                for name, feature in FEATURES.items():
                    if self.only and name not in self.only:
                        continue
                    self._row(number, name, feature, replicated if feature.with_replica else self.server)

    def figures(self) -> dict[str, dict[str, Any]]:
        """For bench/out.json: the median rate and ratio of each row, and its goal."""
        return {
            name: {
                "jobs_per_s": median(self.rates[name]),
                "ratio": median(self.ratios[name]),
                "beside": feature.beside,
                "goal": feature.goal,
                **({"p50_ms": median(self.wait_ms[name])} if name in self.wait_ms else {}),
            }
            for name, feature in FEATURES.items()
            if name in self.rates
        }

    def _row(self, number: int, name: str, feature: Feature, server: Server) -> None:
        watch = Watch(server)
        beside = self._rate(feature.beside, server, feature) if feature.beside != name else None
        rate = self._rate(name, server, feature)
        self.rates.setdefault(name, []).append(rate)
        self.ratios.setdefault(name, []).append(rate / beside if beside else 1.0)
        others = watch.others()
        if others > DISTURBED:
            self.disturbed.append(f"{name} ({others:.1f} cores)")
        self.say(
            f"features, round {number + 1}: {name}: {rate:,.0f}/s, {self.ratios[name][-1]:.2f} of {feature.beside};"
            f" others {others:.2f} cores"
        )

    def _rate(self, name: str, server: Server, row: Feature) -> float:
        """Jobs a second of this row; the floor gets the payload of the row that is compared with it."""
        server.clear()
        if name == "floor":
            return _drain_floor(server, row.calls(int(self.jobs * row.part)))
        feature = FEATURES[name]
        calls = feature.calls(int(self.jobs * feature.part))
        if feature.what == "enqueue":
            return len(calls) / asyncio.run(_fill(server, feature, calls))
        if feature.what == "await":
            rate, p50_ms = _await_all(server, name, feature, calls)
            self.wait_ms.setdefault(name, []).append(p50_ms)
            return rate
        asyncio.run(_fill(server, feature, calls))
        with worker_process(server, name):
            return _drained(lambda: _left(server.redis), len(calls)) * feature.steps


@contextmanager
def worker_process(server: Server, name: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.feature_worker", name],
        stdin=subprocess.PIPE,
        env={**os.environ, "BENCH_URL": server.url},
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _drained(left: Callable[[], int], jobs: int) -> float:
    """Jobs a second, from the first job that is gone to the last one."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    began, first = 0.0, jobs
    while (now_left := left()) > 0:
        if first == jobs and now_left < jobs:
            began, first = time.perf_counter(), now_left
        if time.monotonic() > deadline:
            raise TimeoutError(f"{now_left} of {jobs} jobs are left after {TIMEOUT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    return first / (time.perf_counter() - began) if first < jobs else float("inf")


def _left(server: redis.Redis) -> int:
    names = Names(PREFIX).partition("feature", 0)
    enqueued, completed, failed = (
        int(n or 0) for n in server.hmget(names + "stats", "enqueued", "completed", "failed")
    )
    if failed:
        raise RuntimeError(f"{failed} jobs failed")
    return enqueued - completed


def _drain_floor(server: Server, calls: Sequence[Call]) -> float:
    floor = Floor()
    measure.fill(server, floor, "plain", calls)
    with measure.WorkerProcess("floor", server.url, "plain", held=False):
        return _drained(lambda: floor.left(server.redis, "plain"), len(calls))


async def _fill(server: Server, feature: Feature, calls: Sequence[Call]) -> float:
    """Seconds that the enqueueing took, in a connected producer."""
    app, task = feature.declare(server.url)
    async with app:
        began = time.perf_counter()
        await feature.fill(task, calls)
        return time.perf_counter() - began


def _await_all(server: Server, name: str, feature: Feature, calls: Sequence[Call]) -> tuple[float, float]:
    """Jobs a second, and the median of the milliseconds from the enqueue to the result."""
    with worker_process(server, name):
        return asyncio.run(_call_and_wait(server, feature, calls))


async def _call_and_wait(server: Server, feature: Feature, calls: Sequence[Call]) -> tuple[float, float]:
    app, task = feature.declare(server.url)
    waits: list[float] = []
    async with app:
        await _one(task, calls[0])  # The worker is up.
        todo = iter(calls)

        async def call() -> None:
            for one in todo:
                began = time.perf_counter()
                await _one(task, one)
                waits.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(CALLERS)))
        return len(calls) / (time.perf_counter() - began), median(waits) * 1000


async def _one(task: Task[..., Any], call: Call) -> None:
    job = await task.enqueue(**call)
    await job.result(timeout=TIMEOUT_SECONDS)
