"""Signals of one durable run: which wait on the server, and which the run has taken.

A signal and its record change places in one script (history_write). So a worker that dies in between leaves
either the signal or the record, and no signal is delivered twice.
"""

from __future__ import annotations

from qbull.worker.durable_services import DurableServices
from qbull.worker.step_calls import StepTry

SIGNAL_POLL_SECONDS = 0.5
"""How often a run looks for a signal while other steps keep it in its worker."""


class SignalInbox:
    """For one run.

    Args:
        services: the surroundings of the run.
    """

    def __init__(self, services: DurableServices) -> None:
        self._services = services
        self._taken: set[int] = set()
        self.now_ms = 0
        """The server's time of the last look."""

    async def take(self, name: str, tried: StepTry) -> bytes | None:
        """The value of the oldest signal with this name. Notes its number, so that its record replaces it."""
        found = await self._services.signals()
        self.now_ms, tried.seen = found.now_ms, found.last
        for number, signal in found.signals.items():
            if signal.name == name and number not in self._taken:
                self._taken.add(number)
                tried.signal = number
                return self._services.open_signal(name, signal.content)
        return None
