"""What both contestants must be able to do, and the jobs that they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypedDict

import redis

TEXT = "x" * 72
"""Makes a payload of about 100 bytes."""


class Call(TypedDict):
    """The arguments of one job that does nothing."""

    n: int
    key: str
    text: str


def calls(jobs: int, keys: int = 1, start: int = 0) -> list[Call]:
    return [{"n": n, "key": f"k{n % keys}", "text": TEXT} for n in range(start, start + jobs)]


class Producer(Protocol):
    """A connected producer for one kind of jobs."""

    async def bulk(self, calls: Sequence[Call]) -> None: ...
    async def one(self, call: Call) -> None: ...
    async def ping(self, sent_ns: int) -> None: ...


class Contestant(Protocol):
    """`kind` is "plain", "keyed" (ordered by key), "plain-16", "plain-64" (so many partitions) or "ping".

    One that knows neither order nor partitions does the same as for "plain".
    """

    name: str

    def producing(self, url: str, kind: str) -> AbstractAsyncContextManager[Producer]: ...
    def working(self, url: str, kind: str, gate: Gate) -> AbstractAsyncContextManager[None]: ...
    def left(self, server: redis.Redis, kind: str) -> int:
        """How many jobs are not settled, asked in the cheapest way."""
        ...

    async def look(self, url: str) -> None:
        """What a person asks for: the counts, and a page of jobs."""
        ...


class Gate:
    """Holds the jobs of a worker process until it is told to go, so that starting up is not measured."""

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.ran = 0
        self.waits_ns: list[int] = []
        self.out_of_order = 0
        self._go = asyncio.Event()
        self._reached = asyncio.Event()

    async def hold_up(self) -> None:
        """Called by a job while the gate is held."""
        self._reached.set()
        await self._go.wait()

    async def reached(self) -> None:
        """A job waits at the gate: the worker is connected and has work."""
        if self.held:
            await self._reached.wait()

    def open(self) -> None:
        self.held = False
        self._go.set()

    def close(self) -> None:
        self.held = True
        self._go.clear()

    def report(self) -> dict[str, Any]:
        return {"ran": self.ran, "waits_ns": self.waits_ns, "out_of_order": self.out_of_order}
