"""`python -m bench.sleeping`: what sleeping durable jobs cost, and how late they wake up.

Memory is that of the server for each sleeping job: all of it, and all but its history, as the server measures a sample of histories.
Processor time is that of the server and of an idle worker while all jobs sleep, beside the same two without jobs. Lateness is the time from the end of a sleep to the next line of
its task. The long form is `--jobs 1000000`, which takes some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import uvloop

import qbull
from bench.server import Server, open_server

GOAL_LATE_MS = 50.0
GOAL_BYTES_BESIDES_HISTORY = 300
GOAL_MORE_PERCENT = 1.0
"""Processor time of sleeping jobs, beyond that without them. The two measurements differ by tenths of a percent."""
CHUNK = 1000
CHUNKS_AT_ONCE = 4
SAMPLED_HISTORIES = 200
SLEEP_TIMEOUT_SECONDS = 3600
SECONDS_TO_SLEEP_IN, WAKING_SECONDS = 10.0, 5.0
"""How long all jobs have to fall asleep before the first one wakes up, and over how many seconds they do."""


async def until_asleep(queue: qbull.Queue, jobs: int, seconds: float = SLEEP_TIMEOUT_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while (await queue.stats()).delayed < jobs:
            await asyncio.sleep(0.1)


async def fill(task: qbull.Task[..., None], jobs: int) -> None:
    at_once = asyncio.Semaphore(CHUNKS_AT_ONCE)

    async def enqueue(start: int) -> None:
        async with at_once:
            await task.enqueue_many([{"n": n} for n in range(start, min(start + CHUNK, jobs))])

    await asyncio.gather(*(enqueue(start) for start in range(0, jobs, CHUNK)))


def history_bytes(server: Server) -> float:
    """The size of a history with its name: the mean of a sample."""
    names = islice(server.redis.scan_iter(match="*job:*", count=1000), SAMPLED_HISTORIES)
    return statistics.mean(server.redis.memory_usage(name, samples=0) or 0 for name in names)


class UsedPercent(NamedTuple):
    """Processor time in percent of a core. This process has the worker."""

    server: float
    worker: float

    def beyond(self, other: UsedPercent) -> float:
        return max(self.server - other.server, 0.0) + max(self.worker - other.worker, 0.0)

    def __str__(self) -> str:
        return f"{self.server:.2f} % (server) and {self.worker:.2f} % (worker)"


async def used_percent(server: Server, seconds: float) -> UsedPercent:
    def used() -> tuple[float, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return server.cpu(), own.ru_utime + own.ru_stime

    began, before = time.perf_counter(), used()
    await asyncio.sleep(seconds)
    after, elapsed = used(), time.perf_counter() - began
    return UsedPercent(*((now - then) / elapsed * 100 for now, then in zip(after, before, strict=True)))


async def measure(server: Server, jobs: int, wakes: int, seconds: float) -> None:
    app = qbull.App(server.url, prefix="bench-sleeping")
    queue = app.queue("sleeping", concurrency=50)
    late_ms: list[float] = []

    @queue.task(durable=True)
    async def sleep_long(n: int) -> None:
        await qbull.current_job().sleep(hours=24)

    @queue.task(durable=True)
    async def wake_up(n: int, due: str) -> None:
        until = datetime.fromisoformat(due)
        await qbull.current_job().sleep(until=until)
        late_ms.append((time.time() - until.timestamp()) * 1000)

    async with app, app.worker():
        # The first job starts everything that a worker starts once.
        await fill(sleep_long, 1)
        await until_asleep(queue, 1)
        idle = await used_percent(server, seconds)
        before, began = server.memory(), time.perf_counter()
        async with asyncio.timeout(SLEEP_TIMEOUT_SECONDS):
            await fill(sleep_long, jobs)
            await until_asleep(queue, jobs + 1)
        print(f"falling asleep   {jobs / (time.perf_counter() - began):,.0f} jobs a second")
        size = (server.memory() - before) / jobs
        besides = size - history_bytes(server)
        asleep = await used_percent(server, seconds)
        await _wake(wake_up.enqueue, wakes)
        # If the machine is too busy for that, the lateness would be that of the first run.
        await until_asleep(queue, jobs + 1 + wakes, SECONDS_TO_SLEEP_IN)
        async with asyncio.timeout(SECONDS_TO_SLEEP_IN + WAKING_SECONDS + 60):
            while len(late_ms) < wakes:
                await asyncio.sleep(0.05)
    cuts = statistics.quantiles(late_ms, n=100, method="inclusive")
    print(f"memory           {size:,.0f} bytes for each of {jobs:,} sleeping jobs")
    print(f"besides history  {besides:,.0f} bytes ({verdict(besides, GOAL_BYTES_BESIDES_HISTORY)})")
    more = verdict(asleep.beyond(idle), GOAL_MORE_PERCENT)
    print(f"processor        {asleep} of a core while they sleep; {idle} without them ({more} more)")
    print(
        f"lateness         p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms ({verdict(cuts[98], GOAL_LATE_MS)})"
    )


def verdict(measured: float, goal: float) -> str:
    return f"at most {goal:g}: {'ok' if measured <= goal else 'above'}"


async def _wake(enqueue: Callable[..., Awaitable[object]], wakes: int) -> None:
    """Enqueue jobs that wake up one after the other, beside those that sleep on."""
    start = datetime.now(UTC) + timedelta(seconds=SECONDS_TO_SLEEP_IN)
    dues = [start + timedelta(seconds=WAKING_SECONDS * n / wakes) for n in range(wakes)]
    await asyncio.gather(*(enqueue(n, due.isoformat()) for n, due in enumerate(dues)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs that sleep (20,000)")
    parser.add_argument("--wakes", type=int, default=1_000, help="jobs that wake up (1,000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each processor time (10)")
    asked = parser.parse_args()
    with open_server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(server, asked.jobs, asked.wakes, asked.seconds))


if __name__ == "__main__":
    main()
