"""Histograms: write now and then how long jobs waited and ran.

A worker that runs nothing writes nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from qbull.core.histograms import SCRIPT_ERRORS_FIELD, Histograms
from qbull.core.ids import new_token
from qbull.errors import ServerError
from qbull.store.read import histograms
from qbull.store.store import Store
from qbull.worker.outage import Outage

HISTOGRAM_FLUSH_SECONDS = 15.0


class HistogramWriter:
    """For one queue."""

    def __init__(self, store: Store, queue: str, outage: Outage) -> None:
        self._store = store
        self._queue = queue
        self._outage = outage
        self.histograms = Histograms()
        self._started_before = 0

    @property
    def started_jobs(self) -> int:
        """The number of jobs that were started in this process."""
        return self._started_before + self.histograms.started

    async def open(self) -> None:
        """Learn the server's time. Without it, no wait is counted."""
        await self._write(new_token(), {})

    async def run(self) -> None:
        while True:
            await asyncio.sleep(HISTOGRAM_FLUSH_SECONDS)
            if counted := self._counted():
                await self._outage.retry_until_up(partial(self._write, new_token(), counted))

    async def close(self) -> None:
        """Write the last counts, unless the server is unavailable."""
        if counted := self._counted():
            with suppress(ServerError):
                await self._write(new_token(), counted)

    def _counted(self) -> dict[str, int]:
        self._started_before += self.histograms.started
        counted = self.histograms.take()
        errors = histograms.take_errors(self._store, self._queue)
        return counted | {SCRIPT_ERRORS_FIELD: errors} if errors else counted

    async def _write(self, token: str, counted: dict[str, int]) -> None:
        """Write the counts. The answer has the server's time, taken as the middle of the call."""
        sent = time.perf_counter()
        now_ms = await histograms.add(self._store, self._queue, token, counted)
        self.histograms.origin = now_ms / 1000 - (sent + time.perf_counter()) / 2
