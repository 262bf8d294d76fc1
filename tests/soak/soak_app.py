"""The app of the soak: a little of everything that may leave something behind. `SOAK_LEAK=yes` makes it leak on purpose."""

from __future__ import annotations

import asyncio
import os
import time

import qbull

KEEP = qbull.Keep(completed=200, failed=100)

app = qbull.App(os.environ.get("SOAK_URL") or "redis://127.0.0.1:1/0", prefix="soak")
plain = app.queue("plain", partitions=2, concurrency=20, keep=KEEP, retry=qbull.Retry(delays=(0.2,)))
keyed = app.queue(
    "keyed", partitions=4, order="key", concurrency=20, keep=KEEP, retry=qbull.Retry(delays=(0.2,))
)
limited = app.queue("limited", concurrency=5, max_active=5, rate=qbull.Rate(50, per=1), keep=KEEP)
idle = app.queue("idle", keep=KEEP)

_kept: list[bytes] = []


@plain.task
async def turn(number: int) -> int:
    if os.environ.get("SOAK_LEAK") == "yes":
        _kept.append(os.urandom(4096))
    return number


@plain.task
async def report(number: int) -> None:
    job = qbull.current_job()
    await job.log(f"number {number}")
    await job.progress(50)


@plain.task
def thread(milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)


@plain.task(cpu=True)
def process(number: int) -> int:
    return number


@plain.task
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


@plain.task(timeout=0.2, retry=qbull.Retry(attempts=1))
async def late() -> None:
    await asyncio.sleep(5)


@plain.task(unique=qbull.Unique(window=1, by=("number",)))
async def unique(number: int) -> None: ...


@plain.task(chunk=20, wait=0.2)
async def gather(numbers: list[int]) -> list[int]:
    return numbers


@keyed.task(key="{key}")
async def step(key: str, number: int) -> int:
    """Every tenth needs a second attempt, every hundredth is a dead letter."""
    if number % 100 == 0:
        raise qbull.Fail("the hundredth")
    if number % 10 == 0 and qbull.current_job().attempt == 1:
        raise ValueError("the tenth")
    return number


@keyed.task
async def sum_up() -> int:
    return len(qbull.current_job().results)


@limited.task
async def slow(number: int) -> None:
    await asyncio.sleep(0.01)


@idle.cron(every=1, name="each-second")
async def each_second() -> None: ...
