"""taskiq with taskiq-redis: the stream broker, the one with acknowledgements."""

from __future__ import annotations

import asyncio
import os
import sys
import time

sys.path.pop(0)  # this directory: our name is the library's

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

TEXT = "x" * 72
broker = RedisStreamBroker(os.environ["BENCH_URL"], consumer_id="0")


@broker.task(task_name="noop")
async def noop(n: int, key: str, text: str) -> None:
    pass


async def enqueue(jobs: int) -> float:
    await broker.startup()
    numbers = iter(range(jobs))

    async def feed() -> None:
        for n in numbers:
            await noop.kiq(n, "k0", TEXT)

    began = time.perf_counter()
    await asyncio.gather(*(feed() for _ in range(50)))
    seconds = time.perf_counter() - began
    await broker.shutdown()
    return jobs / seconds


async def work() -> None:
    broker.is_worker_process = True
    await run_receiver_task(broker, max_async_tasks=50, max_prefetch=50, run_startup=True)


if sys.argv[1] == "enqueue":
    print(asyncio.run(enqueue(int(sys.argv[2]))))
else:
    asyncio.run(work())
