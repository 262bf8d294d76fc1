"""Outage: the server going away is survived, and said once when it begins and once, with its length, when it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qbull.core.backoff import ExponentialBackoff, jittered
from qbull.errors import EmbeddedError, ServerAway, ServerError

log = logging.getLogger("qbull.worker")
A = TypeVar("A")

FIRST_RECONNECT_PAUSE_SECONDS = 0.02
MAX_RECONNECT_PAUSE_SECONDS = 2.0
REFUSAL_LOG_SECONDS = 60.0
"""Seconds for which a refusal that was said is not said again."""


class Outage:
    """Shared by all actors of a process, so that ten of them failing is still one line.

    It lasts until everybody actor failed has succeeded: of a cluster, only one node may be away.
    """

    def __init__(self, what: str = "the server") -> None:
        self._what = what
        self._failing: set[object] = set()
        self._since = 0.0
        self._said: dict[str, float] = {}

    async def retry_until_up(
        self,
        call: Callable[[], Awaitable[A]],
        *,
        refusals: bool = True,
        longest: float = MAX_RECONNECT_PAUSE_SECONDS,
    ) -> A:
        """Make the call until the server takes it, with pauses of `longest` seconds at most. Only for calls that may be sent twice.

        Without `refusals` it is only waited for a server that is away; what it refuses is raised.
        """
        delays = ExponentialBackoff(FIRST_RECONNECT_PAUSE_SECONDS, longest).delays()
        actor = object()
        try:
            while True:
                try:
                    return await call()
                except ServerError as error:
                    if not refusals and not isinstance(error, ServerAway | EmbeddedError):
                        raise
                    self.failed(error, actor)
                await asyncio.sleep(jittered(next(delays)))
        except asyncio.CancelledError:  # it was told to stop, which is no news of the server
            self._failing.discard(actor)
            raise
        finally:
            if self._failing:
                self.recovered(actor)

    def failed(self, error: ServerError, actor: object) -> None:
        now = time.monotonic()
        if not isinstance(error, ServerAway | EmbeddedError):
            self._said = {text: at for text, at in self._said.items() if now - at < REFUSAL_LOG_SECONDS}
            if str(error) not in self._said:
                self._said[str(error)] = now
                log.error("%s; it will be tried again", error)
            return
        if not self._failing:
            self._since = now
            log.warning("%s; work goes on when it is back", error)
        self._failing.add(actor)

    def recovered(self, actor: object) -> None:
        """This one has succeeded, or has given up."""
        if actor in self._failing:
            self._failing.discard(actor)
            if not self._failing:
                log.warning("%s is back after %.1f s", self._what, time.monotonic() - self._since)
