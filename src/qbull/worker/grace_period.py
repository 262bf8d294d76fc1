"""The grace period: the time in which running jobs may end after their worker was told to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from math import inf
from typing import Any


class GracePeriod:
    """A number of seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds
        self._shortened = asyncio.Event()

    def shorten(self, seconds: float) -> None:
        """Leave at most this many seconds from now on, also for callers that wait already."""
        self._until = min(self._until, time.monotonic() + seconds)
        self.seconds = min(self.seconds, seconds)
        self._shortened.set()

    async def wait(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Wait until all these tasks have ended, or until the time is over."""
        left = [task for task in tasks if not task.done()]
        while left and (seconds := self._until - time.monotonic()) > 0:
            self._shortened.clear()
            shortened = asyncio.create_task(self._shortened.wait())
            ended = asyncio.create_task(asyncio.wait(left))
            await asyncio.wait(
                [shortened, ended],
                timeout=None if seconds == inf else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            shortened.cancel()
            ended.cancel()
            left = [task for task in left if not task.done()]
