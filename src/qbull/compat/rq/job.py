"""A job with the API of RQ.

Every call is synchronous and asks the server; the qbull job is app.job(queue, id).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from qbull.app import App
from qbull.compat.refusal import refuse_attribute
from qbull.compat.rq.class_hints import HintingClass
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.instead import RQ_JOB_ATTRIBUTE_HINTS
from qbull.compat.rq.retry import REPEAT_HEADER, RETRY_WAITS_HEADER, waits_in
from qbull.compat.rq.status import JobStatus, status_of
from qbull.core.job_info import JobInfo
from qbull.errors import ArgumentsError, NotFound, job_not_found
from qbull.job import Job as Handle
from qbull.produce.after import ids_behind, jobs_before
from qbull.queue import Queue
from qbull.worker.current import current_job

A = TypeVar("A")

MAX_LISTED_JOBS = 1000
"""How many waiting jobs the lists of a queue have at most."""


class Job(metaclass=HintingClass):
    """A job, as `enqueue` and `Job.fetch(id, connection=app)` return it.

    Args:
        app: The app that has the job.
        handle: The job as qbull's own calls return it.
    """

    _class_hints = RQ_JOB_ATTRIBUTE_HINTS

    def __init__(self, app: App, handle: Handle[Any]) -> None:
        self.id = handle.id
        self.origin = handle.queue
        self.created = handle.created
        self._app = app
        self._handle = handle

    @classmethod
    def fetch(cls, id: str, connection: App) -> Job:
        """Find a job in all queues of an app.

        Args:
            id: The id of the job.
            connection: The app.
        """
        return cls(
            connection, connection.run_sync(find_job(connection, list(connection.queues.values()), id))
        )

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: App) -> list[Job | None]:
        """Find jobs; None for each that does not exist.

        Args:
            job_ids: The ids.
            connection: The app.
        """
        return [cls.fetch(id, connection) if cls.exists(id, connection) else None for id in job_ids]

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
        if not isinstance(args, Sequence | None) or isinstance(args, str):
            raise TypeError(f"Job.create(args={args!r}): give a tuple or a list")
        if not isinstance(kwargs, Mapping | None):
            raise TypeError(f"Job.create(kwargs={kwargs!r}): give a dictionary")
        options.pop("origin", None)
        return CreatedJob(func, args or (), kwargs or {}, id, {"job_timeout": timeout} | options)

    def __repr__(self) -> str:
        return f"<Job {self.id} in {self.origin}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_JOB_ATTRIBUTE_HINTS)

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

    def return_value(self, refresh: bool = True) -> Any:
        """Return the result of the function; None if it has not finished.

        Args:
            refresh: Ignored: every call asks the server.
        """
        return self._run(self._handle.result()) if self.is_finished else None

    @property
    def result(self) -> Any:
        """The same as `return_value()`, for code written for older versions of RQ."""
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of a failed job, or its error if there is no traceback."""
        info = self._read()
        return None if info is None or info.state != "failed" else info.stacktrace or info.error

    @property
    def func_name(self) -> str:
        return self._info().task

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments, by name."""
        payload: Mapping[str, Any] = self._info().payload
        return payload

    @property
    def timeout(self) -> float | None:
        """The timeout in seconds; None for the default of the queue."""
        return self._info().timeout

    @property
    def retries_left(self) -> int:
        """How often the call may still be retried."""
        info = self._info()
        waits = waits_in(self._run(self._headers()), RETRY_WAITS_HEADER)
        return max(len(waits) - info.attempt + 1, 0)

    @property
    def repeats_left(self) -> int:
        """How often the call will still be repeated."""
        return len(waits_in(self._run(self._headers()), REPEAT_HEADER))

    @property
    def connection(self) -> App:
        return self._app

    def get_position(self) -> int | None:
        """How many waiting jobs are before this one; None if it does not wait."""
        waiting = self._run(self._app.queues[self.origin].jobs("waiting", 0, MAX_LISTED_JOBS))
        return next((n for n, info in enumerate(waiting) if info.id == self.id), None)

    @property
    def created_at(self) -> datetime:
        return self._info().created_at

    @property
    def enqueued_at(self) -> datetime:
        return self._info().created_at

    @property
    def started_at(self) -> datetime | None:
        return self._info().started_at

    @property
    def ended_at(self) -> datetime | None:
        return self._info().finished_at

    def refresh(self) -> None:
        """Do nothing: every call asks the server."""

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

    def _info(self) -> JobInfo:
        info = self._read()
        if info is None:
            raise job_not_found(self.origin, self.id)
        return info

    async def _headers(self) -> Mapping[str, str]:
        found = await self._handle._find()
        if found is None:
            raise job_not_found(self.origin, self.id)
        return found.body().headers or {}

    def _read(self) -> JobInfo | None:
        return self._run(self._handle.info())

    def _run(self, coroutine: Coroutine[Any, Any, A]) -> A:
        return self._app.run_sync(coroutine)


async def find_job(app: App, queues: list[Queue], id: str) -> Handle[Any]:
    """Find a job in some queues by its id."""
    for queue in queues:
        handle = queue.job(id)
        if await handle.state() is not None:
            return handle
    raise NotFound(f"job {id}: no queue of this app has it; it never existed, or its retention has ended")


class RqCurrentJob:
    """The running job, as `get_current_job()` returns it."""

    def __init__(self) -> None:
        job = current_job()
        self.id, self.origin, self.func_name = job.id, job.queue, job.task
        self.enqueued_at, self.attempt = job.enqueued_at, job.attempt
        self.retries_left = max(len(waits_in(job.headers, RETRY_WAITS_HEADER)) - job.attempt + 1, 0)

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_JOB_ATTRIBUTE_HINTS)

    def get_id(self) -> str:
        return self.id


def get_current_job() -> RqCurrentJob | None:
    """Return the running job; None outside of a job, as in RQ."""
    try:
        return RqCurrentJob()
    except NotFound:
        return None


def cancel_job(job_id: str, connection: App, enqueue_dependents: bool = False) -> None:
    """Cancel a job by its id.

    Args:
        job_id: The id.
        connection: The app.
        enqueue_dependents: As in `Job.cancel`.
    """
    Job.fetch(job_id, connection=connection).cancel(enqueue_dependents=enqueue_dependents)


def requeue_job(job_id: str, connection: App) -> Job:
    """Run a failed or cancelled job again, by its id.

    Args:
        job_id: The id.
        connection: The app.
    """
    return Job.fetch(job_id, connection=connection).requeue()


def __getattr__(name: str) -> Any:
    """RQ has these classes in its module of jobs."""
    if name in ("Callback", "Dependency", "Repeat", "Retry"):
        from qbull.compat import rq

        return getattr(rq, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
