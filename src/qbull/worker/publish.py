"""Publish: tell programs without the code which tasks a worker has, and what these take and return."""

from __future__ import annotations

import asyncio
import random

from qbull.core.task_description import describe_task
from qbull.store.store import Store
from qbull.store.verbs.descriptions import TaskDescriptions
from qbull.worker.assignment import Assignment
from qbull.worker.outage import Outage

PUBLISH_SECONDS = 600.0
"""Seconds between two times at which a worker publishes its tasks. The server forgets a version of the code
that no worker has published for an hour, if there is another one."""


class TaskPublisher:
    """Publishes the tasks of one queue."""

    def __init__(self, store: Store, assignment: Assignment, outage: Outage) -> None:
        self._queue = assignment.settings.name
        described = {name: describe_task(task) for name, task in assignment.tasks.items()}
        self._tasks = {name: task for name, task in described.items() if task is not None}
        self._store = TaskDescriptions(store)
        self._outage = outage

    async def publish(self) -> None:
        """Publish the tasks at the start of the worker."""
        await self._store.publish(self._queue, self._tasks, starts=True)

    async def run(self) -> None:
        """Publish them again from time to time, so that the server remembers this version of the code."""
        while True:
            await asyncio.sleep(PUBLISH_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311
            await self._outage.retry_until_up(self._publish_again)

    async def _publish_again(self) -> None:
        await self._store.publish(self._queue, self._tasks)
