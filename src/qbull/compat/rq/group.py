"""Group: jobs of any queues under one name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from qbull.app import App
from qbull.compat.refusal import refuse
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.exceptions import NoSuchGroupError
from qbull.compat.rq.instead import RQ_CALL_HINTS, RQ_GUIDE
from qbull.compat.rq.job import Job
from qbull.compat.rq.queue import Queue
from qbull.errors import ArgumentsError
from qbull.store.store import Store
from qbull.store.verbs.groups import change_group, read_group, read_group_names


class Group:
    """`Group.create(connection=app)`: enqueue calls together, and find their jobs by one name.

    A group is kept for 30 days after its last change.

    Args:
        connection: The app.
        name: The name of the group; a new one by default.
    """

    def __init__(self, connection: App, name: str | None = None) -> None:
        self.connection = connection
        self.name = name or uuid4().hex

    def __repr__(self) -> str:
        return f"Group(id={self.name})"

    @classmethod
    def create(cls, connection: App, name: str | None = None) -> Group:
        """Make a group. The server knows it when it has a job.

        Args:
            connection: The app.
            name: The name of the group; a new one by default.
        """
        return cls(connection, name)

    @classmethod
    def fetch(cls, name: str, connection: App) -> Group:
        """Find a group. Raises NoSuchGroupError if it has no jobs.

        Args:
            name: The name of the group.
            connection: The app.
        """
        group = cls(connection, name)
        if not group._members():
            raise NoSuchGroupError(f'group "{name}": it has no jobs, or has expired')
        return group

    @classmethod
    def all(cls, connection: App) -> list[Group]:
        """All groups that have jobs.

        Args:
            connection: The app.
        """

        async def names() -> list[str]:
            return await read_group_names(_store(connection))

        groups = [cls(connection, name) for name in connection.run_sync(names())]
        return [group for group in groups if group._members()]

    def enqueue_many(self, queue: Queue, job_datas: Iterable[CreatedJob], pipeline: Any = None) -> list[Job]:
        """Enqueue calls of `Queue.prepare_data` as jobs of this group.

        The group has the ids before the first job is sent, so no job of it is unknown to it.

        Args:
            queue: The queue.
            job_datas: The calls.
            pipeline: Refused: each call is complete when it is sent.
        """
        if pipeline is not None:
            refuse("Group.enqueue_many", {"pipeline": pipeline}, RQ_CALL_HINTS, ArgumentsError, RQ_GUIDE)
        calls = list(job_datas)
        queue.check_calls(calls)
        self._change({call.id: queue.name for call in calls})
        return queue.enqueue_many(calls, group_id=self.name)

    def get_jobs(self) -> list[Job]:
        """The jobs of the group that still exist."""
        return list(self._existing(self._members()))

    def cleanup(self) -> None:
        """Forget jobs that do not exist any more. A group without jobs is deleted."""
        members = self._members()
        existing = {job.id for job in self._existing(members)}
        self._change({id: "" for id in members if id not in existing})

    def delete_job(self, job_id: str, pipeline: Any = None) -> None:
        """Take a job out of the group. The job itself stays.

        Args:
            job_id: The id of the job.
            pipeline: Ignored.
        """
        self._change({job_id: ""})

    def _existing(self, members: dict[str, str]) -> Iterable[Job]:
        for id, queue in members.items():
            if queue in self.connection.queues:
                job = Queue(queue, connection=self.connection).fetch_job(id)
                if job is not None:
                    yield job

    def _members(self) -> dict[str, str]:
        async def read() -> dict[str, str]:
            return await read_group(_store(self.connection), self.name)

        return self.connection.run_sync(read())

    def _change(self, jobs: dict[str, str]) -> None:
        async def change() -> None:
            await change_group(_store(self.connection), self.name, jobs)

        self.connection.run_sync(change())


def _store(app: App) -> Store:
    return app._client().store
