"""A job with the API of RQ.

Every call is synchronous and asks the server; the qbull job is app.job(queue, id).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from qbull.app import App
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.functions import check_serializer
from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.job_options import RqJobOptions
from qbull.compat.rq.status import JobStatus, status_of
from qbull.errors import ArgumentsError, Conflict, NotFound
from qbull.job import Job as Handle
from qbull.produce.after import ids_behind, jobs_before
from qbull.queue import Queue

A = TypeVar("A")

MAX_LISTED_JOBS = 1000
"""How many waiting jobs the lists of a queue have at most."""


class Job(RqJobOptions):
    """A job, as `enqueue` and `Job.fetch(id, connection=app)` return it.

    Args:
        app: The app that has the job.
        handle: The job as qbull's own calls return it.
    """

    _class_hints = RQ_JOB_ATTRIBUTE_HINTS

    @classmethod
    def fetch(cls, id: str, connection: App, serializer: Any = None) -> Job:
        """Find a job in all queues of an app.

        Args:
            id: The id of the job.
            connection: The app.
            serializer: As in `Queue`.
        """
        check_serializer("Job.fetch", serializer)
        return cls(
            connection, connection.run_sync(find_job(connection, list(connection.queues.values()), id))
        )

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: App, serializer: Any = None) -> list[Job | None]:
        """Find jobs; None for each that does not exist.

        Args:
            job_ids: The ids.
            connection: The app.
            serializer: As in `Queue`.
        """
        check_serializer("Job.fetch_many", serializer)
        queues = list(connection.queues.values())

        async def find_all() -> list[Handle[Any] | BaseException]:
            finding = (find_job(connection, queues, id) for id in job_ids)
            return await asyncio.gather(*finding, return_exceptions=True)

        found: list[Job | None] = []
        for handle in connection.run_sync(find_all()):
            if isinstance(handle, BaseException) and not isinstance(handle, NotFound):
                raise handle
            found.append(None if isinstance(handle, BaseException) else cls(connection, handle))
        return found

    @classmethod
    def exists(cls, job_id: str, connection: App) -> bool:
        """Whether a queue of the app has the job.

        Args:
            job_id: The id of the job.
            connection: The app.
        """
        try:
            cls.fetch(job_id, connection)
        except NotFound:
            return False
        return True

    @classmethod
    def create(
        cls,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        connection: App | None = None,
        *,
        id: str | None = None,
        timeout: int | str | None = None,
        **options: Any,
    ) -> CreatedJob:
        """Make a job that is not enqueued yet: `queue.enqueue_job(job)` does that.

        Args:
            func: A registered function, or its name.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.
            connection: Ignored: the queue has the app.
            id: The id of the job; a new one by default.
            timeout: Seconds that one run may take, or for example "3m".
            options: The other options of `enqueue`.
        """
        if not isinstance(func, str) and not callable(func):
            raise TypeError(f"Job.create(func={func!r}): give a function, or its name")
        if not isinstance(args, Sequence | None) or isinstance(args, str):
            raise TypeError(f"Job.create(args={args!r}): give a tuple or a list")
        if not isinstance(kwargs, Mapping | None):
            raise TypeError(f"Job.create(kwargs={kwargs!r}): give a dictionary")
        options.pop("origin", None)
        return CreatedJob(func, args or (), kwargs or {}, id, {"job_timeout": timeout} | options)

    def __repr__(self) -> str:
        return f"<Job {self.id} in {self.origin}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job | CreatedJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def get_id(self) -> str:
        return self.id

    def get_status(self, refresh: bool = True) -> JobStatus | None:
        """Return RQ's name of the state: queued, scheduled, deferred, started, finished, failed or canceled.

        None if the job does not exist any more.

        Args:
            refresh: Ignored: every call asks the server.
        """
        info = self._read()
        return None if info is None else status_of(info)

    @property
    def is_queued(self) -> bool:
        return self.get_status() == "queued"

    @property
    def is_scheduled(self) -> bool:
        return self.get_status() == "scheduled"

    @property
    def is_deferred(self) -> bool:
        return self.get_status() == "deferred"

    @property
    def is_started(self) -> bool:
        return self.get_status() == "started"

    @property
    def is_finished(self) -> bool:
        return self.get_status() == "finished"

    @property
    def is_failed(self) -> bool:
        return self.get_status() == "failed"

    @property
    def is_canceled(self) -> bool:
        return self.get_status() == "canceled"

    @property
    def timeout(self) -> float | None:
        """The timeout in seconds: its own, or that of its queue."""
        own = self._info().timeout
        return self._app.queues[self.origin].settings.timeout if own is None else own

    @property
    def number_of_retries(self) -> int:
        """How often the call has been retried."""
        return max(self._info().attempt - 1, 0)

    @property
    def connection(self) -> App:
        return self._app

    def get_position(self) -> int | None:
        """How many waiting jobs are before this one; None if it does not wait."""
        waiting = self._run(self._app.queues[self.origin].jobs("waiting", 0, MAX_LISTED_JOBS))
        return next((n for n, info in enumerate(waiting) if info.id == self.id), None)

    def cancel(self, pipeline: Any = None, enqueue_dependents: bool = False) -> None:
        """Cancel the job, and stop it if it is running. The jobs that depend on it are cancelled too.

        Args:
            pipeline: Ignored.
            enqueue_dependents: Refused: give the others `Dependency(…, allow_failure=True)`.
        """
        if enqueue_dependents:
            raise ArgumentsError(
                "cancel(enqueue_dependents=True): the jobs that depend on it decide; "
                "enqueue them with depends_on=Dependency(job, allow_failure=True)"
            )
        if self.is_canceled:
            raise Conflict(f"Cannot cancel already canceled job: {self.id}")
        self._run(self._handle.cancel())

    def requeue(self, at_front: bool = False) -> Job:
        """Run a failed or cancelled job again.

        Args:
            at_front: Ignored: a job keeps its priority.
        """
        self._run(self._handle.retry())
        return self

    def delete(self, pipeline: Any = None, delete_dependents: bool = False) -> None:
        """Delete the job permanently. The jobs that depend on it are cancelled.

        Args:
            pipeline: Ignored.
            delete_dependents: Delete the jobs that depend on it too.
        """
        for id in self.dependent_ids if delete_dependents else ():
            Job.fetch(id, connection=self._app).delete(delete_dependents=True)
        self._run(self._handle.remove())

    @property
    def dependency_ids(self) -> list[str]:
        """The ids of the jobs that this one waits for, or has waited for."""
        return [id for _, id in self._run(jobs_before(self._handle))]

    @property
    def dependency(self) -> Job | None:
        """The first of these jobs that still exists."""
        return next(iter(self.fetch_dependencies()), None)

    def fetch_dependencies(self, watch: bool = False) -> list[Job]:
        """The jobs that this one waits for, or has waited for, as far as they still exist.

        Args:
            watch: Ignored.
        """
        found = [self._app.job(queue, id) for queue, id in self._run(jobs_before(self._handle))]
        return [Job(self._app, each) for each in found if self._run(each.state()) is not None]

    @property
    def dependent_ids(self) -> list[str]:
        """The ids of the jobs that wait for this one."""
        return self._run(ids_behind(self._handle))


async def find_job(app: App, queues: list[Queue], id: str) -> Handle[Any]:
    """Find a job in some queues by its id."""
    for queue in queues:
        handle = queue.job(id)
        if await handle.state() is not None:
            return handle
    raise NotFound(f"job {id}: no queue of this app has it; it never existed, or its retention has ended")


def cancel_job(
    job_id: str, connection: App, serializer: Any = None, enqueue_dependents: bool = False
) -> None:
    """Cancel a job by its id.

    Args:
        job_id: The id.
        connection: The app.
        serializer: As in `Queue`.
        enqueue_dependents: As in `Job.cancel`.
    """
    Job.fetch(job_id, connection=connection, serializer=serializer).cancel(
        enqueue_dependents=enqueue_dependents
    )


def requeue_job(job_id: str, connection: App, serializer: Any = None) -> Job:
    """Run a failed or cancelled job again, by its id.

    Args:
        job_id: The id.
        connection: The app.
        serializer: As in `Queue`.
    """
    return Job.fetch(job_id, connection=connection, serializer=serializer).requeue()


def __getattr__(name: str) -> Any:
    """RQ has these names in its module of jobs."""
    if name in ("Callback", "Dependency", "Repeat", "Retry", "get_current_job"):
        from qbull.compat import rq

        return getattr(rq, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
