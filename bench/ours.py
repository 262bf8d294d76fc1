"""qbull as its users run it: default settings, everything on.

Concurrency is 50, a usual figure for asynchronous jobs; the default of 5 is meant for jobs that do something. A
worker process is `app.worker()`, the same engine that `qbull worker` starts, with the objects frozen that it
freezes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis

from bench.contestant import Call, Gate
from qbull import App, Task
from qbull.store.names import Names
from qbull.worker.process.memory import freeze_loaded_objects

PREFIX = "bench"
CONCURRENCY = 50
CHUNK = 1000
PARTITIONS = {"plain-16": 16, "plain-64": 64}


class Ours:
    name = "qbull"

    @asynccontextmanager
    async def producing(self, url: str, kind: str) -> AsyncIterator[OurProducer]:
        app, tasks = declare(url, Gate(held=False))
        async with app:
            yield OurProducer(tasks[kind])

    @asynccontextmanager
    async def working(self, url: str, kind: str, gate: Gate) -> AsyncIterator[None]:
        app, _ = declare(url, gate)
        async with app.worker([kind]):
            freeze_loaded_objects()
            yield

    def left(self, server: redis.Redis, kind: str) -> int:
        with server.pipeline(transaction=False) as look:
            for number in range(PARTITIONS.get(kind, 1)):
                look.hmget(Names(PREFIX).partition(kind, number) + "stats", "enqueued", "completed", "failed")
            totals = [[int(n or 0) for n in counts] for counts in look.execute()]
        if failed := sum(counts[2] for counts in totals):
            raise RuntimeError(f"{failed} jobs failed")
        return sum(enqueued - completed for enqueued, completed, _ in totals)

    async def look(self, url: str) -> None:
        app, tasks = declare(url, Gate(held=False))
        async with app:
            await tasks["plain"].queue.stats()
            await tasks["plain"].queue.jobs("waiting", 0, 50)
            await tasks["plain"].queue.jobs("completed", 0, 50)


class OurProducer:
    def __init__(self, task: Task[..., Any]) -> None:
        self._task = task

    async def bulk(self, calls: Sequence[Call]) -> None:
        for start in range(0, len(calls), CHUNK):
            await self._task.enqueue_many(calls[start : start + CHUNK])

    async def one(self, call: Call) -> None:
        await self._task.enqueue(**call)

    async def ping(self, sent_ns: int) -> None:
        await self._task.enqueue(sent_ns=sent_ns)


def declare(url: str, gate: Gate) -> tuple[App, dict[str, Task[..., Any]]]:
    app = App(url, prefix=PREFIX)
    newest: dict[str, int] = {}

    async def noop(n: int, key: str, text: str) -> None:
        if gate.held:
            await gate.hold_up()
        gate.ran += 1

    async def ordered(n: int, key: str, text: str) -> None:
        if gate.held:
            await gate.hold_up()
        gate.ran += 1
        gate.out_of_order += newest.get(key, -1) >= n
        newest[key] = n

    async def ping(sent_ns: int) -> None:
        gate.waits_ns.append(time.monotonic_ns() - sent_ns)

    return app, {
        "plain": app.queue("plain", concurrency=CONCURRENCY).task(noop),
        "keyed": app.queue("keyed", concurrency=CONCURRENCY, order="key").task(key="{key}")(ordered),
        "ping": app.queue("ping", concurrency=CONCURRENCY).task(ping),
        **{
            kind: app.queue(kind, partitions=partitions, concurrency=CONCURRENCY).task(noop)
            for kind, partitions in PARTITIONS.items()
        },
    }
