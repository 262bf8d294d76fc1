"""`python -m bench.sleeping`: what sleeping durable jobs cost, and how late they wake up.

Memory is that of the server for each sleeping job, its record and history included. Processor time is that of the server and of an
idle worker while all jobs sleep, beside the same worker without jobs. Lateness is the time from the end of a sleep to the next line of
its task. The long form is `--jobs 1000000`.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import uvloop

import qbull
from bench.server import Server, open_server

GOAL_LATE_MS = 50.0
CHUNK = 1000
SLEEP_TIMEOUT_SECONDS = 3600
SECONDS_TO_SLEEP_IN, WAKING_SECONDS = 10.0, 5.0
"""How long all jobs have to fall asleep before the first one wakes up, and over how many seconds they do."""


async def until_asleep(queue: qbull.Queue, jobs: int, seconds: float = SLEEP_TIMEOUT_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while (await queue.stats()).delayed < jobs:
            await asyncio.sleep(0.1)


async def fill(task: qbull.Task[..., None], jobs: int) -> None:
    for start in range(0, jobs, CHUNK):
        await task.enqueue_many([{"n": n} for n in range(start, min(start + CHUNK, jobs))])


async def used_percent(server: Server, seconds: float) -> float:
    """Processor time of the server and of this process, which has the worker, in percent of a core."""

    def used() -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return server.cpu() + own.ru_utime + own.ru_stime

    began, before = time.perf_counter(), used()
    await asyncio.sleep(seconds)
    return (used() - before) / (time.perf_counter() - began) * 100


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
        before = server.memory()
        await fill(sleep_long, jobs)
        await until_asleep(queue, jobs + 1)
        size = (server.memory() - before) / jobs
        asleep = await used_percent(server, seconds)
        await _wake(wake_up.enqueue, wakes)
        # If the machine is too busy for that, the lateness would be that of the first run.
        await until_asleep(queue, jobs + 1 + wakes, SECONDS_TO_SLEEP_IN)
        async with asyncio.timeout(SECONDS_TO_SLEEP_IN + WAKING_SECONDS + 60):
            while len(late_ms) < wakes:
                await asyncio.sleep(0.05)
    cuts = statistics.quantiles(late_ms, n=100, method="inclusive")
    verdict = "ok" if cuts[98] <= GOAL_LATE_MS else "above"
    print(f"memory           {size:,.0f} bytes for each of {jobs:,} sleeping jobs")
    print(f"processor        {asleep:.2f} % of a core while they sleep, {idle:.2f} % without them")
    print(
        f"lateness         p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms (at most {GOAL_LATE_MS:g}: {verdict})"
    )


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
