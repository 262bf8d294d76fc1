"""Procrastinate: jobs deferred in batches of 1,000; one worker with 50 coroutines. Beside the outbox and the inbox."""

from __future__ import annotations

import asyncio
import os
import sys
import time

sys.path.pop(0)  # this directory: our name is the library's

from procrastinate import App, PsycopgConnector

TEXT = "x" * 72
connector = PsycopgConnector(conninfo=os.environ["BENCH_DATABASE"], min_size=1, max_size=20)
app = App(connector=connector)


@app.task(name="noop")
async def noop(n: int, key: str, text: str) -> None:
    pass


@app.task(name="has_effect")
async def has_effect(n: int, key: str, text: str) -> None:
    async with connector.pool.connection() as connection:
        await connection.execute("INSERT INTO effects VALUES (%s)", (n,))


async def enqueue(jobs: int, task: str) -> float:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for start in range(0, jobs, 1000):
            arguments = [{"n": n, "key": "k0", "text": TEXT} for n in range(start, min(start + 1000, jobs))]
            await app.tasks[task].batch_defer_async(*arguments)
        return jobs / (time.perf_counter() - began)


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=50)


if sys.argv[1] == "enqueue":
    print(asyncio.run(enqueue(int(sys.argv[2]), sys.argv[3])))
else:
    asyncio.run(work())
