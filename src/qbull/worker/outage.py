"""Outage: the server going away is survived, and said once when it begins and once, with its length, when it ends."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qbull.errors import ServerAway, ServerError

log = logging.getLogger("qbull.worker")
A = TypeVar("A")

LONGEST_PAUSE = 2.0


class Outage:
    """Shared by all actors of a process, so that ten of them failing is still one line."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said: dict[str, float] = {}

    async def survive(self, call: Callable[[], Awaitable[A]]) -> A:
        """Make the call until the server takes it. Only for calls that may be sent twice."""
        pause = 0.02
        while True:
            asked = time.monotonic()
            try:
                answer = await call()
            except ServerError as error:
                self.met(error)
            else:
                self.over(asked)
                return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            pause = min(pause * 2, LONGEST_PAUSE)

    def met(self, error: ServerError) -> None:
        now = time.monotonic()
        if not isinstance(error, ServerAway):
            if now - self._said.get(str(error), -60) >= 60:
                self._said = {str(error): now}
                log.error("%s; it will be tried again", error)
        elif self._since is None:
            self._since = now
            log.warning("%s; work goes on when it is back", error)

    def over(self, asked: float) -> None:
        """A call that was made at `asked` succeeded: an outage that began before it has ended."""
        if self._since is not None and asked >= self._since:
            log.warning("the server is back after %.1f s", time.monotonic() - self._since)
            self._since = None
