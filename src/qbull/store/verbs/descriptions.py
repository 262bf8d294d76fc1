"""The descriptions of tasks that workers publish, for programs without the code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from qbull.core.digits import whole_number
from qbull.core.task_description import TaskDescription
from qbull.store.retry import StoreVerbs, idempotent


class KnownTask(NamedTuple):
    """A task that the server knows.

    Attributes:
        name: The name of the task.
        versions: Its descriptions, that of the worker that started last first. Two versions of the code in a
            rolling deploy have two. Empty if no worker has published one.
    """

    name: str
    versions: list[TaskDescription]


class TaskDescriptions(StoreVerbs):
    """Writes and reads the descriptions of tasks."""

    @idempotent
    async def publish(
        self, queue: str, descriptions: Mapping[str, TaskDescription], *, starts: bool = False
    ) -> None:
        """Publish the tasks of a worker.

        Args:
            queue: The name of the queue.
            descriptions: The description of each task.
            starts: Whether the worker starts now, so that its version is the newest.
        """
        arguments: list[str | bytes] = []
        for task, description in sorted(descriptions.items()):
            packed = msgspec.json.encode(description)
            arguments += (task, hashlib.sha256(packed).hexdigest()[:10], packed)
        if arguments:
            base = self._store.names.queue(queue)
            await self._store.server.script("publish", base, int(starts), *arguments)

    @idempotent
    async def find(self, queue: str, task: str) -> KnownTask | None:
        """A task with its descriptions; None if the server does not know it."""
        name, packed = await self._store.server.call(
            "HMGET", self._store.names.settings(queue), f"task:{task}", f"described:{task}"
        )
        return KnownTask(task, _versions(packed)) if name or packed else None

    @idempotent
    async def of(self, queue: str, tasks: Sequence[str]) -> list[KnownTask]:
        """These tasks with their descriptions."""
        if not tasks:
            return []
        fields = [f"described:{task}" for task in tasks]
        found = await self._store.server.call("HMGET", self._store.names.settings(queue), *fields)
        return [KnownTask(task, _versions(packed)) for task, packed in zip(tasks, found, strict=True)]


def _versions(packed: bytes | None) -> list[TaskDescription]:
    """The descriptions in a stored value. A line that another release has written may be unreadable."""
    found: list[tuple[int, TaskDescription]] = []
    for line in (packed or b"").split(b"\n"):
        started, _, rest = line.partition(b" ")
        try:
            description = msgspec.json.decode(rest.split(b" ", 2)[2], type=TaskDescription)
        except (msgspec.MsgspecError, IndexError):
            continue
        found.append((whole_number(started) or 0, description))
    found.sort(key=lambda each: each[0], reverse=True)
    return [description for _, description in found]
