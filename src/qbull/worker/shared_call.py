"""Shared call: callers that wait for the same answer share one call to the server.

All queue runners of a worker are woken up by one event, for example by a worker that has started, and each
wants to read the worker registry. A call that is in flight may have missed the event, so callers that come
later share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

A = TypeVar("A")


class SharedCall(Generic[A]):
    """Makes one call at a time. Each caller gets the answer of a call that started after it came."""

    def __init__(self, call: Callable[[], Awaitable[A]]) -> None:
        self._call = call
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[A] | None = None

    async def __call__(self) -> A:
        if self._next is None and not self._one_at_a_time.locked():
            # At once: a worker registers before its first job can start.
            async with self._one_at_a_time:
                return await self._call()
        if self._next is None or self._next.done():  # A program that ends may have cancelled all tasks.
            self._next = asyncio.create_task(self._run())
            self._next.add_done_callback(_look_at_error)
        return await asyncio.shield(self._next)

    async def _run(self) -> A:
        async with self._one_at_a_time:
            self._next = None
            return await self._call()


def _look_at_error(task: asyncio.Task[A]) -> None:
    """All callers may have been cancelled: then nobody else asks for the error."""
    if not task.cancelled():
        task.exception()
