"""One run of a Celery task, with its handlers and signals: on_success, on_failure, task_prerun and others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from qbull.compat.celery import signals
from qbull.core.stacktrace import format_stacktrace
from qbull.errors import Fail, RetryAfter

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask
    from qbull.worker.task_calls import TaskCall

log = logging.getLogger("qbull")


class ExceptionInfo:
    """The error of a run, as handlers and signals get it.

    Args:
        exception: The exception.
    """

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception
        self.type = type(exception)
        self.traceback = format_stacktrace(exception) or ""

    def __str__(self) -> str:
        return self.traceback


class Replaced(BaseException):
    """The run of a task ends, because a signature does its work.

    Not an Exception, so that a task that catches exceptions does not take it for a failure.

    Args:
        signature: The signature.
        call: The call of its jobs; None if it runs here, without a job.
    """

    def __init__(self, signature: Any, call: TaskCall | None) -> None:
        super().__init__("the task was replaced")
        self.signature = signature
        self.call = call


class TaskRun:
    """One call of the function of a task, as a context manager. The caller sets `value`."""

    value: Any = None

    def __init__(
        self,
        task: CeleryTask,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        eager_id: str | None = None,
        retries: int = 0,
        is_item: bool = False,
    ) -> None:
        self.task = task
        self.args = tuple(args)
        self.kwargs = dict(kwargs)
        self.eager_id = eager_id
        self.retries = retries
        self.is_item = is_item
        """Whether its job calls the task for several items."""
        self._token: Token[TaskRun | None] | None = None

    def __enter__(self) -> Self:
        self._token = current_run.set(self)
        request = self.task.request
        self._id = request.id
        self.soft_time_limit = request.soft_time_limit or self.task.traits.soft_time_limit
        values = {"task_id": self._id, "task": self.task, "args": self.args, "kwargs": self.kwargs}
        try:
            signals.task_prerun.send(self.task, **values)
            self.task.before_start(self._id, self.args, self.kwargs)
        except Exception as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        error = raised
        if isinstance(raised, Exception):
            try:
                _retry_if_declared(self.task, raised)
            except Exception as other:
                error = other
        try:
            if isinstance(error, Replaced):
                self._tell_end(None, "IGNORED")
            elif error is None or isinstance(error, Exception):
                self._tell(error)
        finally:
            if self._token is not None:
                current_run.reset(self._token)
        if error is not None and error is not raised:
            raise error

    def _tell(self, error: Exception | None) -> None:
        task, call = self.task, (self._id, self.args, self.kwargs)
        info = ExceptionInfo(error) if error is not None else None
        if error is None:
            state, value = "SUCCESS", self.value
            _logged(task.on_success, self.value, *call)
            signals.task_success.send(task, result=self.value)
        elif isinstance(error, RetryAfter):
            state, value = "RETRY", error
            _logged(task.on_retry, error.__cause__ or error, *call, info)
            signals.task_retry.send(task, request=task.request, reason=error, einfo=info)
        else:
            state, value = "FAILURE", error
            _logged(task.on_failure, error, *call, info)
            named: dict[str, Any] = {"task_id": self._id, "args": self.args, "kwargs": self.kwargs}
            signals.task_failure.send(
                task, exception=error, traceback=error.__traceback__, einfo=info, **named
            )
        _logged(task.after_return, state, value, *call, info)
        self._tell_end(value, state)

    def _tell_end(self, value: Any, state: str) -> None:
        task = self.task
        named = {"task_id": self._id, "task": task, "args": self.args, "kwargs": self.kwargs}
        signals.task_postrun.send(task, retval=value, state=state, **named)


current_run: ContextVar[TaskRun | None] = ContextVar("qbull_celery_run", default=None)


def _logged(handler: Callable[..., Any], *values: Any) -> None:
    """Call a handler of a task. Its errors do not change the outcome of the run."""
    try:
        handler(*values)
    except Exception:
        log.exception("%s failed", getattr(handler, "__qualname__", repr(handler)))


def _retry_if_declared(task: CeleryTask, error: Exception) -> None:
    """Ask for another run if `autoretry_for` has the error."""
    traits = task.traits
    if isinstance(error, (RetryAfter, Fail, *traits.dont_autoretry_for)):
        return
    if isinstance(error, traits.autoretry_for):
        retry_options = dict(traits.retry_kwargs or {})
        wait = traits.wait_after(task.request.retries)
        if wait is not None:
            retry_options["countdown"] = wait
        task.retry(exc=error, **retry_options)
