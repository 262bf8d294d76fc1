"""Self-clocking batches: calls made while others are in flight are sent together.

There is no timer. An idle caller has the latency of one round trip. Busy ones send batches of half of the
outstanding calls: the server works on one half while the callers of the other half continue and call again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A")

MIN_SPLIT_CALLS = 16
"""With fewer outstanding calls, two halves would only make the batches smaller."""


class Batcher(Generic[T, A]):
    """Sends items in batches. `send` takes a list and answers each item; if it raises, the whole batch gets
    the error.

    `in_order` sends one batch at a time, so that items arrive in the order in which they were added.
    """

    def __init__(
        self, send: Callable[[list[T]], Awaitable[Sequence[A]]], max_size: int, *, in_order: bool
    ) -> None:
        self._most_batches = 1 if in_order else 2
        self._send = send
        self._max_size = max_size
        self._waiting: list[tuple[T, asyncio.Future[A]]] = []
        self._batches = 0
        self._gathers = False  # callers that were just answered may have more items
        self._items_in_flight = 0
        self._usual_outstanding = 0.0  # the recent peak of outstanding items
        self._split_at = math.inf  # with that many, a batch of half of the items is worthwhile
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, item: T) -> A:
        if self._batches or self._gathers:
            return await self.put(item)
        # Nothing is in flight: send at once, and let others gather meanwhile.
        self._sent(1)
        try:
            return (await self._send([item]))[0]
        finally:
            self._landed(1)
            self._gather()

    def put(self, item: T) -> asyncio.Future[A]:
        """Like `add`, for callers that wait for the answer later."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) >= self._split_at:
            if self._batches < self._most_batches:
                self._send_batch()
        elif not self._batches and not self._gathers:
            self._send_batch()
        return answer

    async def close(self) -> None:
        """Give up what is waiting and in flight: nobody needs the answers."""
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()
        tasks = list(self._tasks)
        # A task that is cancelled before it starts would leave its callers without an answer.
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _send_batch(self) -> None:
        batch, self._waiting = self._waiting[: self._max_size], self._waiting[self._max_size :]
        self._sent(len(batch))
        task = asyncio.get_running_loop().create_task(self._send_and_answer(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_and_answer(self, batch: list[tuple[T, asyncio.Future[A]]]) -> None:
        answers: Sequence[A] = ()
        failure: Exception | None = None
        try:
            answers = await self._send([item for item, _ in batch])
        except Exception as error:
            failure = error
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        finally:
            # The next batch leaves before these callers go on, so that the server works on it meanwhile.
            self._landed(len(batch))
        if failure is not None:
            for _, future in batch:
                if not future.done():
                    future.set_exception(failure)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        self._gather()

    def _sent(self, items: int) -> None:
        self._batches += 1
        self._items_in_flight += items
        outstanding = self._items_in_flight + len(self._waiting)
        self._usual_outstanding = max(outstanding, self._usual_outstanding * 0.9 + outstanding * 0.1)
        is_busy = self._usual_outstanding >= MIN_SPLIT_CALLS
        self._split_at = self._usual_outstanding / 2 if is_busy else math.inf

    def _landed(self, items: int) -> None:
        self._batches -= 1
        self._items_in_flight -= items
        if not self._batches and (self._split_at is math.inf or len(self._waiting) >= self._split_at):
            self._send_if_idle()

    def _gather(self) -> None:
        """Let callers that were just answered add to the next batch, if there are many."""
        if not self._batches and self._split_at is not math.inf:
            self._gathers = True
            asyncio.get_running_loop().call_soon(self._send_if_idle)

    def _send_if_idle(self) -> None:
        self._gathers = False
        if self._waiting and not self._batches:
            self._send_batch()
