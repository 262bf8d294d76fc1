"""Self-clocking batches: calls made while one is in flight leave together as the next one.

There is no timer. An idle producer has the latency of one round trip; a busy one has batches of hundreds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Batcher(Generic[T, A]):
    """`send` takes a list of items and answers for each of them. If it raises, all of that batch get the error."""

    def __init__(self, send: Callable[[list[T]], Awaitable[Sequence[A]]], most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: list[tuple[T, asyncio.Future[A]]] = []
        self._sending = False
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: T) -> A:
        if self._sending:
            answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
            self._waiting.append((item, answer))
            return await answer
        self._sending = True  # nobody is on the way: go at once, and let others gather meanwhile
        try:
            return (await self._send([item]))[0]
        finally:
            if self._waiting:
                self._task = asyncio.get_running_loop().create_task(self._run())
            else:
                self._sending = False

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                try:
                    answers = await self._send([item for item, _ in batch])
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), answer in zip(batch, answers, strict=True):
                        if not future.done():
                            future.set_result(answer)
        finally:
            self._sending = False
