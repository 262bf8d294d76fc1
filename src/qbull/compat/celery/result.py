"""AsyncResult: a job with the API of Celery.

Every call is synchronous; the qbull job is app.job(queue, id).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from qbull.compat.celery.exceptions import exception_of
from qbull.compat.celery.instead import CELERY_GUIDE, CELERY_RESULT_ATTRIBUTE_HINTS
from qbull.compat.celery.job_state import STATE_LOOKBACK_LINES, ReportedState, reported_in
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.core.job_info import JobInfo
from qbull.errors import ArgumentsError, Conflict, JobCancelled, JobFailed, NotFound
from qbull.job import Job

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery
    from qbull.compat.celery.group_result import GroupResult

A = TypeVar("A")

CELERY_STATES = {
    "waiting": "PENDING",
    "delayed": "PENDING",
    "active": "STARTED",
    "completed": "SUCCESS",
    "failed": "FAILURE",
    "cancelled": "REVOKED",
}
WAITING_OPTIONS = frozenset(("interval", "no_ack", "follow_parents", "disable_sync_subtasks"))
"""Options of `get` that have no effect: there is nothing to poll, and a task may wait for another one."""
READY_JOB_STATES = ("completed", "failed", "cancelled")


class AsyncResult:
    """The result of a job, as `delay` returns it.

    Made from an id alone, it searches all queues of the app.

    Args:
        id: The id of the job.
        app: The app; the newest one by default.
        job: The qbull job, if it is known.
        parent: The result of the task before it in a canvas.
    """

    def __init__(
        self,
        id: str,
        app: Celery | None = None,
        *,
        job: Job[Any] | None = None,
        parent: AsyncResult | GroupResult | None = None,
    ) -> None:
        from qbull.compat.celery.app import newest_app

        self.id = id
        self.app = app or newest_app("AsyncResult")
        self.parent = parent
        self.children: list[Any] = []
        """The results of the callbacks of this call."""
        self._job = job

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_RESULT_ATTRIBUTE_HINTS)

    @property
    def task_id(self) -> str:
        return self.id

    def as_tuple(self) -> tuple[tuple[str, Any], None]:
        """Return the ids of this result and of those before it; `result_from_tuple` reads them."""
        return (self.id, None if self.parent is None else self.parent.as_tuple()), None

    @property
    def state(self) -> str:
        """Celery's name of the state. PENDING also stands for an unknown id, as in Celery."""
        info = self._info()
        if info is None:
            return "PENDING"
        if info.state == "active" and (reported := self._reported(info)) is not None:
            return reported.state
        return "RETRY" if info.state == "delayed" and info.attempt > 1 else CELERY_STATES[info.state]

    status = state

    def ready(self) -> bool:
        info = self._info()
        return info is not None and info.state in READY_JOB_STATES

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **others: Any) -> Any:
        """Wait for the result. A failed job raises the exception of its task, which is a JobFailed too.

        If a task before it in a canvas has failed, its exception is raised.

        Args:
            timeout: Seconds to wait; None waits for the end of the job.
            propagate: Whether to raise the error of a failed job. If False, it is returned.
            others: Options of Celery that have no effect here; others are refused.
        """
        check_get_options(others)
        try:
            return self._run(self._found().result(timeout))
        except (JobFailed, JobCancelled) as ended:
            error = self._cause_of(ended)
        if propagate:
            raise error
        return error

    def _cause_of(self, error: JobFailed | JobCancelled) -> JobFailed | JobCancelled:
        """The error of the first task of a canvas that did not complete."""
        parents: list[Any] = []
        parent = self.parent
        while parent is not None:
            parents += [parent] if isinstance(parent, AsyncResult) else parent.results
            parent = parent.parent
        for each in reversed(parents):
            found = each.result if isinstance(each, AsyncResult) and each.ready() else None
            if isinstance(found, JobFailed | JobCancelled):
                return found
        return exception_of(error) if isinstance(error, JobFailed) else error

    wait = get

    @property
    def name(self) -> str | None:
        """The name of the task."""
        info = self._info()
        return None if info is None else info.task

    @property
    def queue(self) -> str | None:
        """The name of the queue."""
        info = self._info()
        return None if info is None else info.queue

    @property
    def date_done(self) -> datetime | None:
        """When the job ended."""
        info = self._info()
        return None if info is None else info.finished_at

    @property
    def retries(self) -> int | None:
        """How many retries the job has had."""
        info = self._info()
        return None if info is None else info.attempt - 1

    @property
    def result(self) -> Any:
        """The result or the error. Of a running job it is the `meta` of update_state, else None."""
        info = self._info()
        if info is None or info.state not in READY_JOB_STATES:
            reported = self._reported(info) if info is not None and info.state == "active" else None
            return None if reported is None else reported.meta
        return self.get(propagate=False)

    info = result

    @property
    def traceback(self) -> str | None:
        error = self.result
        return error.stacktrace if isinstance(error, JobFailed) else None

    def maybe_throw(self, propagate: bool = True) -> Any:
        """Raise the error if the job has failed.

        Args:
            propagate: Whether to raise it.
        """
        return self.get(propagate=propagate) if self.ready() else None

    def forget(self) -> None:
        """Delete the job with its result."""
        self._run(self._found().remove())

    def revoke(self, terminate: bool = False, **others: Any) -> None:
        """Cancel the job.

        Args:
            terminate: Whether to stop a running job too. By default it continues.
            others: Refused, with a hint at the replacement.
        """
        instead = {
            "signal": "coroutines are cancelled and cpu=True processes killed; "
            "a plain function checks current_job().cancelled",
            "wait": "revoke() returns when the server has recorded it; remove it",
        }
        refuse("revoke", others, instead, ArgumentsError, CELERY_GUIDE)
        info = self._info()
        if info is None or info.state in READY_JOB_STATES or (info.state == "active" and not terminate):
            return
        try:
            self._run(self._found().cancel("revoked"))
        except Conflict:
            # It has finished meanwhile.
            return

    def _info(self) -> JobInfo | None:
        try:
            return self._run(self._found().info())
        except NotFound:
            return None

    def _reported(self, info: JobInfo) -> ReportedState | None:
        try:
            lines = self._run(self._found().logs(STATE_LOOKBACK_LINES))
        except NotFound:
            return None
        return reported_in(lines, info.attempt)

    def _found(self) -> Job[Any]:
        if self._job is None:
            self._job = self._run(self._find())
        return self._job

    async def _find(self) -> Job[Any]:
        for queue in self.app.queues.values():
            job = queue.job(self.id)
            if await job.state() is not None:
                return job
        raise NotFound(
            f"job {self.id}: no queue of this app has it; it never existed, or its retention has ended"
        )

    def _run(self, coroutine: Coroutine[Any, Any, A]) -> A:
        return self.app.run_sync(coroutine)


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Celery lets a task wait for another one only in this block. Here a task may always wait."""
    yield


def check_get_options(given: Mapping[str, Any]) -> None:
    """Accept the options of `get` that say how Celery waits."""
    left = {name: value for name, value in given.items() if name not in WAITING_OPTIONS}
    refuse("get", left, {}, ArgumentsError, CELERY_GUIDE)


def __getattr__(name: str) -> Any:
    """The other names of celery.result."""
    from qbull.compat.celery import eager, group_result

    for module in (group_result, eager):
        if name in ("GroupResult", "ResultSet", "result_from_tuple", "EagerResult") and name in vars(module):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
