"""SAQ: a coroutine for each enqueue, 50 at a time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

sys.path.pop(0)  # this directory: our name is the library's

from saq import Worker
from saq.queue.redis import RedisQueue

TEXT = "x" * 72


async def noop(context: Any, *, n: int, lane: str, text: str) -> None:
    pass


async def enqueue(jobs: int) -> float:
    queue = RedisQueue.from_url(os.environ["BENCH_URL"])
    await queue.connect()
    numbers = iter(range(jobs))

    async def feed() -> None:
        for n in numbers:
            await queue.enqueue("noop", n=n, lane="k0", text=TEXT)

    began = time.perf_counter()
    await asyncio.gather(*(feed() for _ in range(50)))
    return jobs / (time.perf_counter() - began)


async def work() -> None:
    await Worker(RedisQueue.from_url(os.environ["BENCH_URL"]), functions=[noop], concurrency=50).start()


if sys.argv[1] == "enqueue":
    print(asyncio.run(enqueue(int(sys.argv[2]))))
else:
    asyncio.run(work())
