"""Figures of the PostgreSQL bridge: how long from a commit to the start of its job, and what tracking costs a drain.

    make proofs                                             # after everything that is killed and restarted
    PYTHONPATH=tests:tests/postgres python tests/postgres/figures.py --repeats 11

Real servers on loopback (PostgreSQL with fsync, Valkey that flushes every write) and `qbull worker` as users run it. As a
module this is the app of that worker. Both kinds of queue are drained in turn in one run, so their ratio stands for itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psycopg

import qbull
from qbull.embedded.server import EmbeddedServer

LATENCY = 20.0
"""Milliseconds from commit to start, at the median."""
COST = 0.15
"""What tracking may take from the drain rate."""
HERE = Path(__file__).parent

app = qbull.App(os.environ.get("FIGURES_URL") or "redis://127.0.0.1:1/0", prefix="figures")
KEEP = qbull.Keep(completed=1000)
plain = app.queue("plain", concurrency=50, keep=KEEP)
tracked = app.queue("tracked", concurrency=50, keep=KEEP, track=True)
pings = app.queue("pings")


async def work(n: int) -> None: ...


TASKS = {queue.name: queue.task(name="work")(work) for queue in (plain, tracked)}


@pings.task
async def ping() -> int:
    return time.monotonic_ns()


async def commit_to_start(database: str, many: int) -> list[float]:
    """Milliseconds for each of some transactions, one after the other, with nothing else to do."""
    took: list[float] = []
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for n in range(many + 20):
            async with connection.transaction():
                job = await ping.options(transaction=connection).enqueue()
            committed = time.monotonic_ns()
            started = await job.result(timeout=30)
            if n >= 20:  # the first ones open connections
                took.append(max(started - committed, 0) / 1e6)
    return took


async def drain_rate(queue: qbull.Queue, many: int) -> float:
    """Jobs a second, from the moment in which they may begin to the end of the last."""
    await queue.pause()
    before = (await queue.stats()).totals.get("completed", 0)
    for start in range(0, many, 1000):
        await TASKS[queue.name].enqueue_many([{"n": n} for n in range(start, start + 1000)])
    await queue.resume()
    began = time.monotonic()
    while (await queue.stats()).totals.get("completed", 0) < before + many:
        await asyncio.sleep(0.01)
    return many / (time.monotonic() - began)


async def told(database: str, many: int) -> None:
    """Wait until the table has so many ends."""
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        while True:
            cursor = await connection.execute("SELECT count(*) FROM qbull_jobs WHERE status = 'completed'")
            if (await cursor.fetchone() or (0,))[0] >= many:
                return
            await asyncio.sleep(0.05)


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """The addresses of a Valkey and of a database with the tables."""
    from database import Postgres

    with tempfile.TemporaryDirectory(prefix="qbull-figures-") as directory:
        valkey = EmbeddedServer.open(Path(directory, "valkey"))
        postgres = Postgres(fsync=True).start()
        try:
            database = postgres.url(postgres.make_database())
            qbull.postgres.migrate(database)
            yield f"unix://:{valkey.password}@{valkey.socket}?db=0", database
        finally:
            postgres.remove()
            valkey.close()


@contextmanager
def worker(url: str, database: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "qbull.cli.main", "worker", "figures:app"],
        cwd=HERE,
        env={
            **os.environ,
            "FIGURES_URL": url,
            "QBULL_DATABASE_URL": database,
            "QBULL_LOG_LEVEL": "ERROR",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


async def measure(database: str, repeats: int, jobs: int, commits: int) -> tuple[list[float], list[float]]:
    """Milliseconds from commit to start, and the ratios of the tracked rate to the plain one."""
    async with app:
        # A rewrite of the log would fall into one drain and not into the next one.
        await app._client().store.server.call("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
        took = await commit_to_start(database, commits)
        await drain_rate(plain, jobs)
        await drain_rate(tracked, jobs)  # both once for warmth
        await told(database, jobs)
        ratios: list[float] = []
        for n in range(repeats):
            rates: dict[str, float] = {}
            for queue in (plain, tracked) if n % 2 else (tracked, plain):
                rates[queue.name] = await drain_rate(queue, jobs)
                if queue is tracked:
                    await told(database, jobs * (n + 2))
            ratios.append(rates["tracked"] / rates["plain"])
            print(
                f"  plain {rates['plain']:8,.0f} jobs/s   tracked {rates['tracked']:8,.0f} jobs/s   ratio {ratios[-1]:.2f}",
                flush=True,
            )
    return took, ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--commits", type=int, default=300)
    args = parser.parse_args()
    with servers() as (url, database), worker(url, database):
        app.url = url
        took, ratios = asyncio.run(measure(database, args.repeats, args.jobs, args.commits))
    took.sort()
    p50, p99, ratio = median(took), took[int(len(took) * 0.99)], median(ratios)
    print(f"commit to start: p50 {p50:.1f} ms, p99 {p99:.1f} ms (bar: p50 under {LATENCY:g} ms)")
    print(
        f"tracked to plain: {ratio:.2f} of the drain rate (bar: {1 - COST:.2f}); {min(ratios):.2f} to {max(ratios):.2f}"
    )
    return 0 if p50 < LATENCY and ratio >= 1 - COST else 1


if __name__ == "__main__":
    sys.modules["figures"] = sys.modules["__main__"]
    sys.exit(main())
