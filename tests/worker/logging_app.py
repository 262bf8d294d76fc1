"""The app that the worker processes of these tests serve. Jobs write a line into a log when they begin and when they end."""

from __future__ import annotations

import asyncio
import gc
import os
import time

import qbull
from qbull.store.store import Store
from qbull.worker.process import memory

app = qbull.App(os.environ.get("LOGGING_APP_URL") or "redis://127.0.0.1:1/0", prefix="test")
work = app.queue(
    "work",
    order="key",
    concurrency=int(os.environ.get("LOGGING_APP_CONCURRENCY", "10")),
    retry=qbull.Retry(attempts=5, backoff="fixed", delay=0.02),
)


def note(word: str, key: str, number: int) -> None:
    line = f"{word} {key} {number} {qbull.current_job().attempt} {os.getpid()} {time.time()}\n"
    fd = os.open(os.environ["LOGGING_APP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


@work.task(key="{key}")
async def step(key: str, number: int, failures: int = 0, seconds: float = 0.0) -> None:
    """Fails as often as it is told, then takes its time, then has its effect."""
    note("begin", key, number)
    await asyncio.sleep(seconds)
    if qbull.current_job().attempt <= failures:
        raise ValueError("not yet")
    note("end", key, number)


@work.task
async def block(key: str, seconds: float) -> None:
    """Keeps the event loop to itself."""
    note("begin", key, 0)
    time.sleep(seconds)
    note("end", key, 0)


@work.task
async def die(key: str) -> None:
    note("begin", key, 0)
    os._exit(3)


@work.task
async def touch(key: str) -> None:
    note("begin", key, 0)


@work.task
def plain(key: str, seconds: float) -> None:
    note("begin", key, 0)
    time.sleep(seconds)
    note("end", key, 0)


memory.MEMORY_TRIM_SECONDS = float(os.environ.get("LOGGING_APP_GIVE_BACK", memory.MEMORY_TRIM_SECONDS))


@work.task
async def swell(key: str) -> int:
    """Needs much, and leaves holes between the little that it keeps; gives the kilobytes that the process had."""
    pieces = [bytes(600 + number % 3000) for number in range(50_000)]
    left_over.extend(pieces[::50])
    return anonymous_memory(os.getpid())


@work.task
async def frozen_objects(key: str) -> int:
    """Gives the number of objects that the garbage collector leaves alone."""
    return gc.get_freeze_count()


left_over: list[bytes] = []


def anonymous_memory(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


parcels = app.queue("parcels", concurrency=20, retry=qbull.Retry(attempts=1, backoff="fixed", delay=1))


@parcels.task(chunk=5, wait=0.2)
async def pack(numbers: list[int]) -> list[int]:
    """A number below zero kills its worker and all that it has."""
    for number, job in zip(numbers, qbull.current_jobs(), strict=True):
        line = f"begin {len(numbers)} {number} {job.attempt} {os.getpid()} {time.time()}\n"
        with open(os.environ["LOGGING_APP_LOG"], "a") as log:
            log.write(line)
    await asyncio.sleep(float(os.environ.get("LOGGING_APP_PACKING", "0")))
    if any(number < 0 for number in numbers):
        os._exit(3)
    return numbers


async def ready_workers() -> int:
    """How many workers have asked for work."""
    store = Store(app.url, app.prefix)
    try:
        streams = await store.streams(await store.partitions(work.settings))
        return max([len(await store.consumers(stream)) for stream in streams.values()], default=0)
    finally:
        await store.close()
