"""Failing: count the attempts of tasks that failed, for queues that raise alerts.

They are counted here and written down once a second, so that a task which fails ten thousand times costs one call a second.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.alerts import Failures, note_failures
from qbull.worker.outage import Outage

EVERY = 1.0
MOST = 200
"""Tasks between two writes; what is beyond them is not counted."""


class Failing:
    """For one queue."""

    def __init__(self, store: Store, queue: str, outage: Outage) -> None:
        self._store = store
        self._queue = queue
        self._outage = outage
        self._counted: dict[str, Failures] = {}
        self._some = asyncio.Event()

    def failed(self, task: str, job: str, reason: str) -> None:
        before = self._counted.get(task)
        if before is not None or len(self._counted) < MOST:
            self._counted[task] = Failures((before.many if before else 0) + 1, job, reason)
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            counted, self._counted = self._counted, {}
            self._some.clear()
            await self._outage.survive(partial(note_failures, self._store, self._queue, counted))
            await asyncio.sleep(EVERY)

    async def close(self) -> None:
        """Write down what is left."""
        if self._counted:
            with suppress(ServerError):
                await note_failures(self._store, self._queue, self._counted)
