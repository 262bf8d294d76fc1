"""The jobs of a queue with the API of RQ: those that wait, one by its id, and the registries."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from qbull.app import App
from qbull.compat.refusal import refuse_attribute
from qbull.compat.rq.class_hints import HintingClass
from qbull.compat.rq.instead import RQ_QUEUE_ATTRIBUTE_HINTS
from qbull.compat.rq.job import MAX_LISTED_JOBS, Job, find_job
from qbull.errors import Conflict, NotFound
from qbull.queue import Queue as QbullQueue

REGISTRIES = {
    "failed_job_registry": "FailedJobRegistry",
    "finished_job_registry": "FinishedJobRegistry",
    "started_job_registry": "StartedJobRegistry",
    "scheduled_job_registry": "ScheduledJobRegistry",
    "deferred_job_registry": "DeferredJobRegistry",
    "canceled_job_registry": "CanceledJobRegistry",
}
"""Attributes of a queue, and the classes of qbull.compat.rq.registry that they are."""


class QueuedJobs(metaclass=HintingClass):
    """The part of a queue that reads and deletes its jobs.

    Args:
        app: The app.
        queue: The queue of the app.
    """

    _class_hints = RQ_QUEUE_ATTRIBUTE_HINTS

    def __init__(self, app: App, queue: QbullQueue) -> None:
        self.app = app
        self.queue = queue
        self.name = queue.name

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def __str__(self) -> str:
        return f"<Queue {self.name}>"

    def __lt__(self, other: QueuedJobs) -> bool:
        if not isinstance(other, QueuedJobs):
            raise TypeError(f"{self!r} < {other!r:.80}: a queue can only be compared with a queue")
        return self.name < other.name

    @property
    def connection(self) -> App:
        return self.app

    def is_empty(self) -> bool:
        """Whether no job waits."""
        return self.count == 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QueuedJobs):
            raise TypeError(f"{self!r} == {other!r:.80}: a queue can only be compared with a queue")
        return other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name not in REGISTRIES:
            refuse_attribute(self, name, RQ_QUEUE_ATTRIBUTE_HINTS)
        from qbull.compat.rq import registry  # It needs Queue.

        return getattr(registry, REGISTRIES[name])(queue=self)

    @property
    def count(self) -> int:
        """The number of waiting jobs."""
        return self.app.run_sync(self.queue.stats()).waiting

    def empty(self) -> int:
        """Delete all waiting jobs. Returns how many."""
        deleted = 0
        while jobs := self.get_jobs():
            for job in jobs:
                with suppress(NotFound, Conflict):
                    job.delete()
                    deleted += 1
        return deleted

    def delete(self, delete_jobs: bool = True) -> None:
        """Delete all waiting jobs. The queue itself stays as long as an app declares it.

        Args:
            delete_jobs: False does nothing.
        """
        if delete_jobs:
            self.empty()

    def get_job_position(self, job_or_id: Job | str) -> int | None:
        """How many waiting jobs are before a job; None if it does not wait.

        Args:
            job_or_id: The job or its id.
        """
        job = self.fetch_job(job_or_id) if isinstance(job_or_id, str) else job_or_id
        return None if job is None else job.get_position()

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """The ids of waiting jobs, in the order in which they will run.

        Args:
            offset: How many to leave out.
            length: How many at most; -1 for up to 1,000.
        """
        end = offset + (MAX_LISTED_JOBS if length < 0 else length)
        return [info.id for info in self.app.run_sync(self.queue.jobs("waiting", offset, end))]

    def get_jobs(self, offset: int = 0, length: int = -1) -> list[Job]:
        """The waiting jobs, in the order in which they will run.

        Args:
            offset: How many to leave out.
            length: How many at most; -1 for up to 1,000.
        """
        return [Job(self.app, self.queue.job(id)) for id in self.get_job_ids(offset, length)]

    @property
    def job_ids(self) -> list[str]:
        return self.get_job_ids()

    @property
    def jobs(self) -> list[Job]:
        return self.get_jobs()

    def remove(self, job_or_id: Job | str) -> None:
        """Delete a job.

        Args:
            job_or_id: The job or its id.
        """
        job = self.fetch_job(job_or_id) if isinstance(job_or_id, str) else job_or_id
        if job is not None:
            job.delete()

    def fetch_job(self, job_id: str) -> Job | None:
        """Return a job of this queue, or None if it does not exist.

        Args:
            job_id: The id of the job.
        """
        try:
            return Job(self.app, self.app.run_sync(find_job(self.app, [self.queue], job_id)))
        except NotFound:
            return None
