"""CeleryTask: the task that `@app.task` makes. It is a qbull task with `delay`, `apply_async` and `retry`.

Celery retries a task only if the task asks for it, with `self.retry(…)` or `autoretry_for`. So these tasks
have one attempt, and both calls ask for another one.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

from qbull.compat.celery.django_project import call_on_commit
from qbull.compat.celery.instead import (
    CELERY_CALL_HINTS,
    CELERY_GUIDE,
    CELERY_REQUEST_ATTRIBUTE_HINTS,
    CELERY_RETRY_HINTS,
    CELERY_TASK_ATTRIBUTE_HINTS,
    CELERY_TASK_HINTS,
)
from qbull.compat.celery.result import AsyncResult
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.core.options import Options
from qbull.core.outcome import describe
from qbull.core.task import TaskSpec
from qbull.errors import ArgumentsError, DeclarationError, Fail, NotFound, RetryAfter
from qbull.queue import Queue
from qbull.task import Call, Task
from qbull.worker.current import current_job

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery

RETRIES_HEADER = "celery.retries"
"""The header of jobs that were moved from Celery with the number of their retries there."""
FIXED_TASK_OPTIONS = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "track_started": True,
    "store_errors_even_if_ignored": True,
    "serializer": "json",
}
"""Options with only one possible value, because qbull always behaves so; other values are refused."""


class Retry(RetryAfter):
    """Raised by `self.retry(…)`: the job runs again later.

    Args:
        delay: Seconds until the job runs again.
        reason: The text for the history of the job.
        queue: Whether the whole queue waits.
    """


class MaxRetriesExceededError(Exception):
    """Raised by `self.retry(…)` without `exc` if no retries are left."""


@dataclass(frozen=True)
class CeleryTaskOptions:
    """The keywords of `@app.task` that are supported here."""

    name: str = ""
    bind: bool = False
    queue: str | None = None
    priority: int | None = None
    expires: float | None = None
    time_limit: float | None = None
    ignore_result: bool = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    retry_kwargs: Mapping[str, Any] | None = None
    retry_backoff: bool | float = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CeleryTaskOptions:
        known = {field.name for field in fields(cls)}
        left = {
            name: value
            for name, value in given.items()
            if name not in known and not (name in FIXED_TASK_OPTIONS and value == FIXED_TASK_OPTIONS[name])
        }
        refuse("task", left, CELERY_TASK_HINTS, DeclarationError, CELERY_GUIDE)
        options = cls(**{name: value for name, value in given.items() if name in known})
        refuse(
            "task(retry_kwargs): retry",
            {n: v for n, v in (options.retry_kwargs or {}).items() if n not in ("max_retries", "countdown")},
            CELERY_RETRY_HINTS,
            DeclarationError,
            CELERY_GUIDE,
        )
        return options

    def wait_after(self, retries: int) -> float | None:
        """Return the seconds before the next run; None without a backoff."""
        if not self.retry_backoff:
            return None
        wait = min(self.retry_backoff_max, int(max(1.0, float(self.retry_backoff))) * 2 ** min(retries, 64))
        # The random wait spreads retries; it is no secret.
        return random.randrange(wait + 1) if self.retry_jitter else wait  # noqa: S311


class CeleryRequest:
    """The running job, as `self.request` of Celery."""

    def __init__(self, task: str) -> None:
        self.id: str | None = None
        self.task = task
        self.retries = 0
        self.called_directly = True
        self.is_eager = False
        try:
            job = current_job()
        except NotFound:
            return
        if job.task == task:
            self.id, self.called_directly = job.id, False
            self.retries = job.attempt - 1 + int(job.headers.get(RETRIES_HEADER, 0))

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_REQUEST_ATTRIBUTE_HINTS)


class CeleryTask(Task[..., Any]):
    """A function that can be enqueued. Called directly, it runs the function.

    It is also a qbull task with `enqueue`, `options` and `step`.

    Args:
        app: The app that declares the task.
        queue: The queue of its jobs, unless a call names another one.
        spec: The function with its name and its defaults.
        traits: The options of `@app.task`.
    """

    def __init__(self, app: Celery, queue: Queue, spec: TaskSpec, traits: CeleryTaskOptions) -> None:
        super().__init__(queue, spec)
        self.app = app
        self.max_retries = traits.max_retries
        self.default_retry_delay = traits.default_retry_delay
        self.traits = traits

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.spec.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, CELERY_TASK_ATTRIBUTE_HINTS)

    @property
    def request(self) -> CeleryRequest:
        return CeleryRequest(self.name)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        *,
        countdown: float | None = None,
        eta: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        expires: float | datetime | None = None,
        time_limit: float | None = None,
        **others: Any,
    ) -> AsyncResult:
        """Enqueue the task with options.

        Args:
            args: Positional arguments of the task.
            kwargs: Keyword arguments of the task.
            task_id: The id of the job.
            countdown: Seconds until the job may run.
            eta: Time from which the job may run. Without a zone it is in conf.timezone.
            queue: The queue for this job, instead of the one of the task.
            priority: From 0 (first) to 9 (last), as in Celery on Redis.
            expires: Seconds or time after which the job does not start any more.
            time_limit: Seconds that one run may take.
            others: Refused, with a hint at the replacement.
        """
        refuse("apply_async", others, CELERY_CALL_HINTS, ArgumentsError, CELERY_GUIDE)
        if isinstance(args, str) or (args is not None and not isinstance(args, Sequence)):
            raise ArgumentsError(f'task "{self.name}": args={args!r}: pass a list or a tuple')
        home = self.app.home_of(self.name, queue or self.traits.queue)
        options = Options(
            delay=countdown,
            at=self._aware(eta),
            priority=priority_of(self._priority(priority)),
            id=task_id,
            timeout=time_limit,
            expires=self._aware(expires) if isinstance(expires, datetime) else expires,
        )
        call: Call[..., Any] = Call(home, home.tasks[self.name], options)
        job = call.enqueue_sync(*(args or ()), **(kwargs or {}))
        return AsyncResult(job.id, self.app, job=job)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Enqueue the task with these arguments when Django's current transaction commits."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """Do `apply_async` when Django's current transaction commits; at once without one.

        The arguments are checked now.

        Args:
            args: Positional arguments of the task.
            kwargs: Keyword arguments of the task.
            options: The options of `apply_async`.
        """
        self.check(*(args or ()), **(kwargs or {}))
        call_on_commit(functools.partial(self.apply_async, args, kwargs, **options))

    def AsyncResult(self, task_id: str) -> AsyncResult:
        """Return the result of a job.

        Args:
            task_id: The id of the job.
        """
        return AsyncResult(task_id, self.app)

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **others: Any,
    ) -> NoReturn:
        """End this run and ask for another one.

        Args:
            exc: The error to raise if no retries are left.
            countdown: Seconds until the job runs again.
            eta: Time at which the job runs again. Without a zone it is in conf.timezone.
            max_retries: The limit for this call, instead of that of the task.
            others: Refused, with a hint at the replacement.
        """
        refuse("retry", others, CELERY_RETRY_HINTS, ArgumentsError, CELERY_GUIDE)
        request = self.request
        if request.called_directly:
            raise (
                exc
                or sys.exc_info()[1]
                or Retry(0, "the task was called directly, so there is no job to retry")
            )
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and request.retries >= limit:
            raise exc or MaxRetriesExceededError(
                f"cannot retry {self.name}[{request.id}]: "
                f"it had {request.retries} retries, {limit} are allowed"
            )
        wait = self.default_retry_delay if countdown is None else countdown
        if eta is not None:
            wait = max((self._aware(eta) or eta).timestamp() - datetime.now(UTC).timestamp(), 0)
        cause = exc or sys.exc_info()[1]
        raise Retry(wait, describe(cause) if cause is not None else "") from exc

    def _priority(self, given: int | None) -> int | None:
        for priority in (given, self.traits.priority, self.app.conf.task_default_priority):
            if priority is not None:
                return int(priority)
        return None

    def _aware(self, moment: datetime | None) -> datetime | None:
        """Return a time with a zone. One without it is in conf.timezone, as in Celery."""
        if moment is None or moment.utcoffset() is not None:
            return moment
        return moment.replace(tzinfo=ZoneInfo(self.app.conf.zone))


def priority_of(celery: int | None) -> int:
    """Convert a priority. Celery on Redis has 0 (first, the default) to 9; qbull has 1 (first) to 10, 5 by
    default.

    Celery's default becomes qbull's default, so jobs without a priority mix with those of qbull's own tasks.
    Celery's four steps 0, 3, 6 and 9 stay distinct.
    """
    if celery is None:
        return 5
    if not 0 <= celery <= 9:
        raise ArgumentsError(f"priority={celery}: give a whole number from 0 (first) to 9 (last)")
    return 5 + (celery + 1) // 2


def guarded(
    function: Callable[..., Any], traits: CeleryTaskOptions, task: Callable[[], CeleryTask]
) -> Callable[..., Any]:
    """Wrap a function for a worker: pass `self` if it is bound, and retry as `autoretry_for` declares."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if traits.bind and not parameters:
        raise DeclarationError(f'task "{traits.name}": bind=True, but it has no first parameter "self"')

    def failed(error: BaseException) -> None:
        if isinstance(error, (RetryAfter, Fail, *traits.dont_autoretry_for)):
            return
        if isinstance(error, traits.autoretry_for):
            retry_options = dict(traits.retry_kwargs or {})
            wait = traits.wait_after(task().request.retries)
            if wait is not None:
                retry_options["countdown"] = wait
            task().retry(exc=error, **retry_options)

    def bound(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (task(), *args) if traits.bind else args

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            try:
                value = await function(*bound(args), **kwargs)
            except Exception as error:
                failed(error)
                raise
            return None if traits.ignore_result else value
    else:

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                value = function(*bound(args), **kwargs)
            except Exception as error:
                failed(error)
                raise
            return None if traits.ignore_result else value

    if traits.bind:
        run.__signature__ = signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
        run.__annotations__ = {n: a for n, a in run.__annotations__.items() if n != parameters[0].name}
    return run
