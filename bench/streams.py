"""`python -m bench.streams`: from `job.emit` to a reader, beside a bare XADD and a blocked XREAD in the same run.

Writer and reader are two coroutines of one process in both cases, and one value is on its way at a time. Rounds alternate; medians are compared. The goal is
a ratio of at most 1.5.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import redis.asyncio
import uvloop

import qbull
from bench.server import open_server

GOAL_RATIO = 1.5
PAUSE_SECONDS = 0.002
"""Between two values, so that the reader waits when the next one comes."""


async def floor(url: str, values: int) -> list[float]:
    """Milliseconds from a bare XADD to the reader that waits in XREAD."""
    writer, reader = redis.asyncio.Redis.from_url(url), redis.asyncio.Redis.from_url(url)
    waits: list[float] = []

    async def read() -> None:
        last = b"0-0"
        while len(waits) < values:
            for _, entries in await reader.xread({"floor": last}, block=5000):
                for last, fields in entries:  # noqa: B007 - it is where the next read starts
                    waits.append((time.perf_counter() - float(fields[b"v"])) * 1000)

    await writer.delete("floor")
    reading = asyncio.create_task(read())
    for _ in range(values):
        await asyncio.sleep(PAUSE_SECONDS)
        await writer.xadd("floor", {"v": repr(time.perf_counter())})
    await reading
    await writer.aclose()
    await reader.aclose()
    return waits


async def ours(url: str, values: int) -> list[float]:
    """Milliseconds from `job.emit` to `handle.stream()`."""
    app = qbull.App(url, prefix="bench-streams")

    @app.queue("streams").task
    async def emit_times() -> None:
        job = qbull.current_job()
        for _ in range(values):
            await asyncio.sleep(PAUSE_SECONDS)
            await job.emit(time.perf_counter())

    async with app, app.worker():
        job = await emit_times.enqueue()
        return [(time.perf_counter() - sent) * 1000 async for sent in job.stream()]


async def measure(url: str, values: int, rounds: int) -> float:
    found: dict[Callable[[str, int], Awaitable[list[float]]], list[float]] = {floor: [], ours: []}
    for _ in range(rounds):
        for contestant, medians in found.items():
            medians.append(statistics.median(await contestant(url, values)))
    bare, emitted = (statistics.median(medians) for medians in found.values())
    ratio = emitted / bare
    verdict = "ok" if ratio <= GOAL_RATIO else "above"
    print(f"XADD to XREAD    {bare:.3f} ms")
    print(f"emit to stream   {emitted:.3f} ms")
    print(f"ratio            {ratio:.2f} (at most {GOAL_RATIO}: {verdict})")
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with open_server() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(server.url, asked.values, asked.rounds))


if __name__ == "__main__":
    main()
