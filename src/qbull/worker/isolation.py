"""Isolation: a job that is suspected of killing workers runs while nothing else does.

If it kills this worker too, no other job dies with it, and there is no doubt which job did it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Isolation:
    """One for a worker process, over all its queues. The runners keep `busy` up to date around every job."""

    def __init__(self) -> None:
        self.busy = 0
        self.closed = False
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    def left(self) -> None:
        self.busy -= 1
        if self.closed:
            self._changed.set()

    async def opened(self) -> None:
        """Wait until other jobs may start again."""
        while self.closed:
            async with self._turn:
                pass

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._turn:
            self.closed = True
            try:
                while self.busy:
                    self._changed.clear()
                    await self._changed.wait()
                yield
            finally:
                self.closed = False
