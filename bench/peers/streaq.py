"""streaq: enqueue_many, 1,000 at a time."""

from __future__ import annotations

import asyncio
import os
import sys
import time

sys.path.pop(0)  # this directory: our name is the library's

from streaq import Worker

TEXT = "x" * 72
worker = Worker(redis_url=os.environ["BENCH_URL"], concurrency=50)


@worker.task(name="noop")
async def noop(n: int, key: str, text: str) -> None:
    pass


async def enqueue(jobs: int) -> float:
    async with worker:
        began = time.perf_counter()
        for start in range(0, jobs, 1000):
            await worker.enqueue_many(
                [noop.enqueue(n, "k0", TEXT) for n in range(start, min(start + 1000, jobs))]
            )
        return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(asyncio.run(enqueue(int(sys.argv[2]))))
else:
    worker.run_sync()
