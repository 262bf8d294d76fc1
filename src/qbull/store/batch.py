"""Self-clocking batches: calls made while others are in flight leave together.

There is no timer. An idle producer has the latency of one round trip. A busy one has batches of half of the calls that
are outstanding, two of them in flight: the server works on the one while the answers to the other bring the next calls.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")

MIN_CALLS_TO_SPLIT = 16
"""Calls outstanding at a time below which a second flight would only make the batches smaller."""


class Batcher(Generic[T, A]):
    """`send` takes a list of items and answers for each of them. If it raises, all of that batch get the error.

    `in_order`: what is added first arrives first. Then there is one flight at a time.
    """

    def __init__(
        self, send: Callable[[list[T]], Awaitable[Sequence[A]]], most: int, *, in_order: bool
    ) -> None:
        self._in_order = in_order
        self._send = send
        self._most = most
        self._waiting: list[tuple[T, asyncio.Future[A]]] = []
        self._flights = 0
        self._flying = 0  # items in flight
        self._usual = 0.0  # items that are outstanding at a time, of late
        self._half = math.inf  # of these, where a second flight is worth while
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, item: T) -> A:
        if not self._flights:  # nobody is on the way: go at once, and let others gather meanwhile
            self._take_off(1)
            try:
                return (await self._send([item]))[0]
            finally:
                self._land(1)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) >= self._half and self._flights == 1:
            self._depart()
        return await answer

    def _depart(self) -> None:
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        self._take_off(len(batch))
        task = asyncio.get_running_loop().create_task(self._fly(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, batch: list[tuple[T, asyncio.Future[A]]]) -> None:
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
            self._land(len(batch))

    def _take_off(self, items: int) -> None:
        self._flights += 1
        self._flying += items
        outstanding = self._flying + len(self._waiting)
        self._usual = max(outstanding, self._usual * 0.9 + outstanding * 0.1)
        self._half = self._usual / 2 if self._usual >= MIN_CALLS_TO_SPLIT and not self._in_order else math.inf

    def _land(self, items: int) -> None:
        self._flights -= 1
        self._flying -= items
        if self._flights or not self._waiting:
            return
        if self._half is math.inf or len(self._waiting) >= self._half:
            self._depart()
        else:  # those who have just been answered may have more
            asyncio.get_running_loop().call_soon(self._depart_if_alone)

    def _depart_if_alone(self) -> None:
        if self._waiting and not self._flights:
            self._depart()
