"""How the rate of a row of bench/features.py is measured: a drain, an enqueue in bulk, or calls that wait for results.

The clock of a drain runs from the first job that is gone to the last one, so starting up is not measured. If the
jobs need several attempts, it runs from the start of the first one: the worker process says when that is.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import redis

from bench import measure
from bench.contestant import Call
from bench.features import PREFIX, Feature
from bench.floor import Floor
from bench.server import Server
from qbull import Task
from qbull.store.names import Names

TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.002
CALLERS = 50


def drain(server: Server, name: str, feature: Feature, calls: Sequence[Call], database: str = "") -> float:
    asyncio.run(fill(server, feature, calls, database))
    with worker_process(server, name, database) as worker:
        began = _first_start(worker) if feature.from_first_start else None
        return drained(lambda: left(server.redis), len(calls), began) * feature.steps


@contextmanager
def worker_process(server: Server, name: str, database: str = "") -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.feature_worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "BENCH_URL": server.url, "BENCH_DATABASE": database},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _first_start(worker: subprocess.Popen[bytes]) -> float:
    """When the first job has started, on the clock that all processes share."""
    assert worker.stdout is not None
    if not select.select([worker.stdout], [], [], TIMEOUT_SECONDS)[0]:
        raise TimeoutError(f"no job has started after {TIMEOUT_SECONDS:g} s")
    return float(worker.stdout.readline())


def drained(left: Callable[[], int], jobs: int, began: float | None = None) -> float:
    """Jobs a second, from `began` or from the first job that is gone, to the last one."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    first = jobs
    while (now_left := left()) > 0:
        if began is None and now_left < jobs:
            began, first = time.monotonic(), now_left
        if time.monotonic() > deadline:
            raise TimeoutError(f"{now_left} of {jobs} jobs are left after {TIMEOUT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    return first / (time.monotonic() - began) if began is not None else float("inf")


def completed(server: redis.Redis) -> int:
    """Counts even where jobs are still to come, out of PostgreSQL."""
    return int(server.hget(Names(PREFIX).partition("feature", 0) + "stats", "completed") or 0)


def left(server: redis.Redis) -> int:
    names = Names(PREFIX).partition("feature", 0)
    enqueued, completed, failed = (
        int(n or 0) for n in server.hmget(names + "stats", "enqueued", "completed", "failed")
    )
    if failed:
        raise RuntimeError(f"{failed} jobs failed")
    return enqueued - completed


def drain_floor(server: Server, calls: Sequence[Call]) -> float:
    floor = Floor()
    measure.fill(server, floor, "plain", calls)
    with measure.WorkerProcess("floor", server.url, "plain", held=False):
        return drained(lambda: floor.left(server.redis, "plain"), len(calls))


def enqueue_floor(server: Server, calls: Sequence[Call]) -> float:
    return len(calls) / measure.fill(server, Floor(), "plain", calls)


async def fill(server: Server, feature: Feature, calls: Sequence[Call], database: str = "") -> float:
    """Seconds that the enqueueing took, in a connected producer."""
    app, task = feature.declare(server.url, database)
    async with app:
        began = time.perf_counter()
        await feature.fill(task, calls)
        return time.perf_counter() - began


def await_all(server: Server, name: str, feature: Feature, calls: Sequence[Call]) -> tuple[float, float]:
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
