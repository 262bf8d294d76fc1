"""AsyncResult: a job with the API of Celery.

Every call is synchronous; the qbull job is app.job(queue, id).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from qbull.compat.celery.instead import CELERY_GUIDE, CELERY_RESULT_ATTRIBUTE_HINTS
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.core.job_info import JobInfo
from qbull.errors import ArgumentsError, Conflict, JobCancelled, JobFailed, NotFound
from qbull.job import Job

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

A = TypeVar("A")

CELERY_STATES = {
    "waiting": "PENDING",
    "delayed": "PENDING",
    "active": "STARTED",
    "completed": "SUCCESS",
    "failed": "FAILURE",
    "cancelled": "REVOKED",
}
READY_STATES = ("completed", "failed", "cancelled")


class AsyncResult:
    """The result of a job, as `delay` returns it.

    Made from an id alone, it searches all queues of the app.

    Args:
        id: The id of the job.
        app: The app; the newest one by default.
        job: The qbull job, if it is known.
    """

    def __init__(self, id: str, app: Celery | None = None, *, job: Job[Any] | None = None) -> None:
        from qbull.compat.celery.app import current_app

        self.id = id
        self.app = app or current_app("AsyncResult")
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

    @property
    def state(self) -> str:
        """Celery's name of the state. PENDING also stands for an unknown id, as in Celery."""
        info = self._info()
        if info is None:
            return "PENDING"
        return "RETRY" if info.state == "delayed" and info.attempt > 1 else CELERY_STATES[info.state]

    status = state

    def ready(self) -> bool:
        info = self._info()
        return info is not None and info.state in READY_STATES

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **others: Any) -> Any:
        """Wait for the result. A failed job raises qbull.JobFailed with the text of its error.

        Args:
            timeout: Seconds to wait; None waits for the end of the job.
            propagate: Whether to raise the error of a failed job. If False, it is returned.
            others: Refused.
        """
        refuse("get", others, {}, ArgumentsError, CELERY_GUIDE)
        try:
            return self._run(self._found().result(timeout))
        except (JobFailed, JobCancelled) as error:
            if propagate:
                raise
            return error

    wait = get

    @property
    def result(self) -> Any:
        """The result or the error; None if the job has not finished."""
        return self.get(propagate=False) if self.ready() else None

    info = result

    @property
    def traceback(self) -> str | None:
        error = self.result
        return error.stacktrace if isinstance(error, JobFailed) else None

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
        if info is None or info.state in READY_STATES or (info.state == "active" and not terminate):
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
