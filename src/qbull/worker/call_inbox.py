"""Outcomes of the calls of one durable run.

The outcomes that the server has are read with the history. While other steps keep the run in its worker, it
looks again now and then, once for all of its calls.
"""

from __future__ import annotations

import asyncio

from qbull.core.calls import CallOutcomes
from qbull.worker.durable_services import DurableServices

CALL_POLL_SECONDS = 0.5
"""How often a run looks for outcomes while other steps keep it in its worker."""


class CallInbox:
    """For one run.

    Args:
        services: the surroundings of the run.
        outcomes: those that came with the history.
    """

    def __init__(self, services: DurableServices, outcomes: CallOutcomes) -> None:
        self._services = services
        self._outcomes = dict(outcomes.outcomes)
        self.last = outcomes.last
        """The number of the newest signal or outcome that this run knows."""
        self._awaited: set[str] = set()
        self._look: asyncio.Task[None] | None = None

    def outcome(self, name: str) -> bytes | None:
        """The outcome of a call; None if its job has not ended, as far as this run knows."""
        return self._outcomes.get(name)

    async def look(self, name: str) -> None:
        """Ask the server whether the job of this call has ended, and those of all other calls that wait."""
        self._awaited.add(name)
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._read())
        await asyncio.shield(self._look)

    async def _read(self) -> None:
        await asyncio.sleep(0)  # other calls may ask in the same turn
        awaited = sorted(self._awaited)
        self._awaited.clear()
        self.last, found = await self._services.call_outcomes(awaited)
        self._outcomes.update(found)
