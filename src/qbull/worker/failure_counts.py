"""Failure counts: count the attempts of tasks that failed, for queues that raise alerts.

They are counted here and written down once a second, so that a task which fails ten thousand times costs one
call a second.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.alerts import TaskFailures, add_failures
from qbull.worker.outage import Outage

FAILURE_COUNT_FLUSH_SECONDS = 1.0
MAX_COUNTED_TASKS = 200
"""Tasks between two writes; failures of further tasks are not counted."""


class FailureCounter:
    """For one queue."""

    def __init__(self, store: Store, queue: str, outage: Outage) -> None:
        self._store = store
        self._queue = queue
        self._outage = outage
        self._counted: dict[str, TaskFailures] = {}
        self._some = asyncio.Event()

    def failed(self, task: str, job: str, reason: str) -> None:
        before = self._counted.get(task)
        if before is not None or len(self._counted) < MAX_COUNTED_TASKS:
            self._counted[task] = TaskFailures((before.many if before else 0) + 1, job, reason)
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            counted, self._counted = self._counted, {}
            self._some.clear()
            await self._outage.retry_until_up(partial(add_failures, self._store, self._queue, counted))
            await asyncio.sleep(FAILURE_COUNT_FLUSH_SECONDS)

    async def close(self) -> None:
        """Write the last counts."""
        if self._counted:
            with suppress(ServerError):
                await add_failures(self._store, self._queue, self._counted)
