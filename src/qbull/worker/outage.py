"""Outages: actors wait for an unavailable server. The log has one line at the start and one at the end."""

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
"""Seconds for which the same refusal is not logged again."""


class Outage:
    """Shared by all actors of a process, so that many failing actors still log one line.

    An outage lasts until every actor that failed has succeeded: in a cluster, a single node may be
    unavailable.
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
        """Repeat the call until the server accepts it. Only for calls that may be sent twice.

        Args:
            call: The call.
            refusals: Repeat it also if the server refuses it; otherwise a refusal is raised.
            longest: The longest pause in seconds.
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
        except asyncio.CancelledError:
            # The actor was stopped, which says nothing about the server.
            self._failing.discard(actor)
            raise
        finally:
            if self._failing:
                self.recovered(actor)

    def failed(self, error: ServerError, actor: object) -> None:
        """A call of this actor has failed.

        Logs the first failure of an outage, and each refusal once a minute.
        """
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
        """The actor has succeeded or given up. Logs the end of the outage if no other actor is failing."""
        if actor in self._failing:
            self._failing.discard(actor)
            if not self._failing:
                log.warning("%s is back after %.1f s", self._what, time.monotonic() - self._since)
