"""arq: a coroutine for each enqueue, 50 at a time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

sys.path.pop(0)  # this directory: our name is the library's

from arq import create_pool, run_worker
from arq.connections import RedisSettings

TEXT = "x" * 72


async def noop(context: dict[str, Any], n: int, key: str, text: str) -> None:
    pass


class Settings:
    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(os.environ["BENCH_URL"])
    max_jobs = 50


async def enqueue(jobs: int) -> float:
    pool = await create_pool(Settings.redis_settings)
    numbers = iter(range(jobs))

    async def feed() -> None:
        for n in numbers:
            await pool.enqueue_job("noop", n, "k0", TEXT)

    began = time.perf_counter()
    await asyncio.gather(*(feed() for _ in range(50)))
    return jobs / (time.perf_counter() - began)


if sys.argv[1] == "enqueue":
    print(asyncio.run(enqueue(int(sys.argv[2]))))
else:
    run_worker(Settings)
