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
from qbull.core.job_info import JobInfo
from qbull.errors import NotFound, job_not_found
from qbull.job import Job as Handle
from qbull.queue import Queue
from qbull.worker.current import current_job

A = TypeVar("A")

RQ_STATES = {
    "waiting": "queued",
    "delayed": "scheduled",
    "active": "started",
    "completed": "finished",
    "failed": "failed",
    "cancelled": "canceled",
}


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

    def get_status(self, refresh: bool = True) -> str | None:
        """Return RQ's name of the state: queued, scheduled, started, finished, failed or canceled.

        None if the job does not exist any more.

        Args:
            refresh: Ignored: every call asks the server.
        """
        info = self._read()
        return None if info is None else RQ_STATES[info.state]

    @property
    def is_queued(self) -> bool:
        return self.get_status() == "queued"

    @property
    def is_scheduled(self) -> bool:
        return self.get_status() == "scheduled"

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

    def cancel(self) -> None:
        """Cancel the job, and stop it if it is running."""
        self._run(self._handle.cancel())

    def requeue(self) -> Job:
        """Run a failed or cancelled job again."""
        self._run(self._handle.retry())
        return self

    def delete(self) -> None:
        """Delete the job permanently."""
        self._run(self._handle.remove())

    def _info(self) -> JobInfo:
        info = self._read()
        if info is None:
            raise job_not_found(self.origin, self.id)
        return info

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
