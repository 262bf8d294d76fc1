"""The app of the tests of shared limits: three queues on one limit. Jobs log their starts and their weights."""

from __future__ import annotations

import asyncio
import os
import time

import qbull

app = qbull.App(os.environ.get("LIMITED_APP_URL") or "redis://127.0.0.1:1/0", prefix="test")
RATE = qbull.Rate(int(os.environ.get("LIMITED_APP_COUNT", "400")), per=4)
limit = qbull.Limit("openai", rate=RATE, concurrency=40)
chat = app.queue("chat", partitions=4, concurrency=10, limit=limit.use(weight=2))
mail = app.queue("mail", partitions=4, concurrency=10)
scan = app.queue("scan", partitions=4, concurrency=10)


def note(word: str, weight: int) -> None:
    job = qbull.current_job()
    line = f"{word} {job.queue}:{job.id} {weight} {time.time()} {os.getpid()}\n"
    fd = os.open(os.environ["LIMITED_APP_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


@chat.task
async def answer() -> None:
    note("begin", 2)
    await asyncio.sleep(0.05)
    note("end", 2)


@mail.task(limit=limit.use(weight="tokens"))
def summarise(tokens: int) -> None:
    note("begin", tokens)
    time.sleep(0.02)
    note("end", tokens)


@scan.task(limit=limit.use(weight=lambda pages: pages * 2))
async def scan_pages(pages: int) -> None:
    """Asks for twice of what it uses."""
    note("begin", pages)
    qbull.current_job().spent(pages)
    note("end", pages)


@chat.task(retry=qbull.Retry(attempts=5, backoff="fixed", delay=0.02))
async def doze(seconds: float) -> None:
    note("begin", 2)
    await asyncio.sleep(seconds)
    note("end", 2)
