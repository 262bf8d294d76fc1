"""The app of fill.py, declared with today's code, on a server with the saved data. Tasks note their runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from redis import Redis
from server_dump import load

import qbull

FOLDER = Path(__file__).parent / "filled"
KEEP = qbull.Keep(completed=1000, failed=1000)


class Saved(msgspec.Struct):
    """A job of the manifest. `state` is the one that the old code left it in."""

    label: str
    queue: str
    id: str
    state: str


class Manifest(msgspec.Struct):
    made_with: str
    encryption_key: str
    api_token: str
    jobs: list[Saved]
    in_order: list[list[str]]


def read_manifest() -> Manifest:
    return msgspec.convert(json.loads((FOLDER / "manifest.json").read_text()), Manifest)


def restore(url: str) -> None:
    with Redis.from_url(url) as server:
        load(server, FOLDER / "server.xz")


def empty(url: str) -> None:
    with Redis.from_url(url) as server:
        server.flushall()


class RestoredApp:
    """`ran` has the label of each run, in order."""

    def __init__(self, url: str, prefix: str, manifest: Manifest) -> None:
        self.manifest = manifest
        self.ran: list[str] = []
        self.has_worked = False
        self.flow_results: dict[str, list[Any]] = {}
        key = manifest.encryption_key
        # The server was filled by a build that bound payloads to their task only.
        codecs = [
            qbull.Compressed(over=10),
            qbull.Encrypted([key], require=False),
            qbull.Signed([key], require=False),
        ]
        self.app = app = qbull.App(url, prefix=prefix)
        self.encrypted_app = qbull.App(url, prefix=prefix, middleware=codecs)
        common: dict[str, Any] = {"keep": KEEP, "retry": qbull.Retry(attempts=2, backoff="fixed", delay=20)}
        rate = qbull.Rate(1000)
        plain = app.queue("plain", partitions=2, alert=True, **common)
        app.queue("second", **common)
        app.queue("levels", concurrency=1, **common)
        app.queue("ordered", partitions=2, order="key", **common)
        app.queue("halting", order="key", on_failed="halt", keep=KEEP, retry=qbull.Retry(attempts=1))
        app.queue("stages", partitions=2, order="partition", **common)
        app.queue("limited", max_active=2, rate=rate, lane=qbull.Lane(limit=2, rate=rate), **common)
        app.queue("resting", **common)
        app.queue("steered", **common)
        app.queue("moving", partitions=2, order="key", concurrency=2, **common)
        chunks = app.queue("chunks", **common)
        app.queue("tracked", track=True, **common)
        self.encrypted_app.queue("sealed", **common)
        self.tasks = {
            queue.name: queue.task(name="work")(self._work)
            for one in (app, self.encrypted_app)
            for queue in one.queues.values()
            if queue is not chunks
        }
        chunks.task(name="pack", chunk=5, wait=0.01)(self._pack)
        self.tidy = plain.task(name="tidy")(self._tidy)
        plain.cron("* * * * *", name="code", catch_up="one", args={"label": "tick-code"})(self.tasks["plain"])

    async def _work(self, label: str) -> str:
        self.ran.append(label)
        self.flow_results[label] = qbull.current_job().results
        return f"new {label}"

    async def _tidy(self, topic: str, label: str) -> str:
        return await self._work(label)

    async def _pack(self, labels: list[str]) -> list[str]:
        self.ran += labels
        return [f"new {label}" for label in labels]

    def queue(self, name: str) -> qbull.Queue:
        return (self.encrypted_app if name == "sealed" else self.app).queues[name]

    def handle(self, job: Saved) -> qbull.Job[Any]:
        return self.queue(job.queue).job(job.id)

    def job(self, label: str) -> qbull.Job[Any]:
        return next(self.handle(job) for job in self.manifest.jobs if job.label == label)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Run today's workers until the queues are empty; jobs that are due in the year 2200 are promoted.

        Yields a function that waits until the queues are empty.
        """
        self.has_worked = True
        async with self.app.worker() as worker, self.encrypted_app.worker() as other:
            for job in self.manifest.jobs:
                if job.label.startswith("far"):
                    await self.handle(job).promote()

            async def drain() -> None:
                await worker.drain()
                await other.drain()

            yield drain
            await drain()

    async def close(self) -> None:
        await self.app.close()
        await self.encrypted_app.close()
