"""Registries of RQ: the jobs of a queue in one state, read from the server at every call."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from qbull.app import App
from qbull.compat.rq.job import Job
from qbull.compat.rq.queue import Queue
from qbull.compat.rq.status import is_deferred
from qbull.core.job_info import JobInfo
from qbull.core.record import State
from qbull.errors import NotFound

REGISTRY_PAGE_SIZE = 1000


class BaseRegistry:
    """The jobs of a queue in one state.

    Args:
        name: The name of the queue.
        connection: The app.
        queue: The queue, instead of its name and app.
        others: Refused, as with `Queue`.
    """

    state: ClassVar[State]

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        queue: Queue | None = None,
        **others: Any,
    ) -> None:
        self._queue = queue if queue is not None else Queue(name, connection=connection, **others)
        self.name = self._queue.name

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other._queue == self._queue

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item: Job | str) -> bool:
        job = self._queue.fetch_job(_id_of(item))
        return job is not None and self._has(job._info())

    def _has(self, info: JobInfo) -> bool:
        return info.state == self.state

    @property
    def connection(self) -> App:
        return self._queue.app

    @property
    def serializer(self) -> Any:
        return self._queue.serializer

    @property
    def count(self) -> int:
        counts = self._queue.app.run_sync(self._queue.queue.stats())
        found: int = getattr(counts, self.state)
        return found

    def get_job_count(self, cleanup: bool = True) -> int:
        """The number of jobs.

        Args:
            cleanup: Ignored: the server keeps the registries.
        """
        return self.count

    def get_job_ids(
        self, start: int = 0, end: int = -1, desc: bool = False, cleanup: bool = True
    ) -> list[str]:
        """The ids of the jobs.

        Args:
            start: The position of the first job.
            end: The position of the last job, included; -1 for all.
            desc: Reverses the order.
            cleanup: Ignored: the server keeps the registries.
        """
        queue, at = self._queue, 0
        ids: list[str] = []
        last = MAX_REGISTRY_JOBS if end < 0 else end + 1
        while len(ids) < last and at < MAX_REGISTRY_JOBS:
            page = queue.app.run_sync(queue.queue.jobs(self.state, at, at + REGISTRY_PAGE_SIZE))
            ids += [info.id for info in page if self._has(info)]
            if len(page) < REGISTRY_PAGE_SIZE:
                break
            at += REGISTRY_PAGE_SIZE
        ids = ids[start:last]
        return ids[::-1] if desc else ids

    def cleanup(self, timestamp: float | None = None) -> None:
        """Do nothing: the server keeps the registries.

        Args:
            timestamp: Ignored.
        """

    def get_queue(self) -> Queue:
        return self._queue

    def remove(self, job: Job | str, pipeline: Any = None, delete_job: bool = False) -> None:
        """Delete a job. Here a job is in one state only, so it is gone.

        Args:
            job: The job or its id.
            pipeline: Ignored.
            delete_job: Ignored: the job is always deleted.
        """
        found = self._queue.fetch_job(_id_of(job))
        if found is not None:
            found.delete()

    def requeue(self, job_or_id: Job | str, at_front: bool = False) -> Job:
        """Run a failed or cancelled job again.

        Args:
            job_or_id: The job or its id.
            at_front: Ignored: a job keeps its priority.
        """
        return Job.fetch(_id_of(job_or_id), connection=self._queue.app).requeue()


class StartedJobRegistry(BaseRegistry):
    """The jobs that run."""

    state = "active"


class FinishedJobRegistry(BaseRegistry):
    """The jobs that have completed, for as long as the queue keeps them."""

    state = "completed"


class FailedJobRegistry(BaseRegistry):
    """The dead letters."""

    state = "failed"


class ScheduledJobRegistry(BaseRegistry):
    """The jobs that wait for their time, or for their next attempt."""

    state = "delayed"

    @property
    def count(self) -> int:
        return len(self.get_job_ids())

    def _has(self, info: JobInfo) -> bool:
        return super()._has(info) and not is_deferred(info)

    def get_scheduled_time(self, job_or_id: Job | str) -> datetime:
        """When a job is due. Raises NoSuchJobError if it does not wait for a time.

        Args:
            job_or_id: The job or its id.
        """
        id = _id_of(job_or_id)
        job = self._queue.fetch_job(id)
        due = None if job is None else job._info().due_at
        if due is None:
            raise NotFound(f'queue "{self.name}": job {id} is not scheduled')
        return due


class DeferredJobRegistry(BaseRegistry):
    """The jobs that wait for other jobs."""

    state = "delayed"

    @property
    def count(self) -> int:
        return len(self.get_job_ids())

    def _has(self, info: JobInfo) -> bool:
        return super()._has(info) and is_deferred(info)


class CanceledJobRegistry(BaseRegistry):
    """The cancelled jobs."""

    state = "cancelled"


MAX_REGISTRY_JOBS = 1_000_000


def _id_of(item: Job | str) -> str:
    return item if isinstance(item, str) else item.id
