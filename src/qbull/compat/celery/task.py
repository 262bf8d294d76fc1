"""CeleryTask: the task that `@app.task` makes. It is a qbull task with `delay`, `apply_async` and `retry`.

Celery retries a task only if the task asks for it, with `self.retry(…)` or `autoretry_for`. So these tasks
have one attempt, and both calls ask for another one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo

from qbull.compat.celery.call_options import CALLBACK_OPTIONS, call_option_support
from qbull.compat.celery.django_project import call_on_commit
from qbull.compat.celery.exceptions import MaxRetriesExceededError, Retry
from qbull.compat.celery.instead import (
    CELERY_CALL_HINTS,
    CELERY_GUIDE,
    CELERY_RETRY_HINTS,
    CELERY_TASK_ATTRIBUTE_HINTS,
)
from qbull.compat.celery.job_state import report_state
from qbull.compat.celery.own_apply_async import call_capture
from qbull.compat.celery.publishing import announce, announce_sent, headers_of
from qbull.compat.celery.request import CeleryRequest
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.signature import Signature, signature
from qbull.compat.celery.task_handlers import TaskHandlers, TaskSignatures
from qbull.compat.celery.task_options import CeleryTaskOptions, priority_of
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.core.options import Options
from qbull.core.outcome import describe
from qbull.core.task import TaskSpec
from qbull.errors import ArgumentsError
from qbull.queue import Queue
from qbull.task import Call, Task

if TYPE_CHECKING:
    from qbull.compat.celery.app import Celery


class CeleryTask(TaskHandlers, TaskSignatures, Task[..., Any]):
    """A function that can be enqueued. Called directly, it runs the function.

    It is also a qbull task with `enqueue`, `options` and `step`.

    Args:
        app: The app that declares the task.
        queue: The queue of its jobs, unless a call names another one.
        spec: The function with its name and its defaults.
        traits: The options of `@app.task`.
    """

    run: Callable[..., Any]
    """The function of the task."""

    def __init__(
        self,
        app: Celery | None = None,
        queue: Queue | None = None,
        spec: TaskSpec | None = None,
        traits: CeleryTaskOptions | None = None,
    ) -> None:
        if app is None or queue is None or spec is None or traits is None:
            return  # A class task, which app.register_task(…) completes.
        super().__init__(queue, spec)
        self.app = app
        self.max_retries = traits.max_retries
        self.default_retry_delay = traits.default_retry_delay
        self.traits = traits
        function: Any = spec.function.__wrapped__  # type: ignore[attr-defined]
        if not hasattr(type(self), "run"):
            self.run = functools.partial(function, self) if traits.bind else function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

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
        if isinstance(args, str) or (args is not None and not isinstance(args, Sequence)):
            raise ArgumentsError(f'task "{self.name}": args={args!r}: pass a list or a tuple')
        options = {
            "task_id": task_id,
            "countdown": countdown,
            "eta": eta,
            "queue": queue,
            "priority": priority,
            "expires": expires,
            "time_limit": time_limit,
            **others,
        }
        capture = call_capture.get()
        if capture is not None and capture.take(self, args, kwargs, options):
            return AsyncResult(task_id or "", self.app)
        if others.get("link") or others.get("link_error") or self.app.conf.task_always_eager:
            called: AsyncResult = self._enqueue_canvas(args, kwargs, options)
            return called
        args, kwargs = args or (), kwargs or {}
        call = self.call_with(announce(self, options, args, kwargs))
        job = call.enqueue_sync(*args, **kwargs)
        announce_sent(self, call, job.id, args, kwargs)
        return AsyncResult(job.id, self.app, job=job)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Run the task here, without a job. Returns an EagerResult.

        Args:
            args: Positional arguments of the task.
            kwargs: Keyword arguments of the task.
            options: `task_id`, `link` and `link_error`; others have no effect here.
        """
        from qbull.compat.celery.eager import apply_canvas

        return apply_canvas(Signature(self, args, kwargs, **options))

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None, **others: Any
    ) -> None:
        """Report a state of the running job, which `AsyncResult.state` and `info` show while it runs.

        It is a line in the log of the job. `current` and `total` in `meta` are its progress as well.

        Args:
            task_id: The id of the running job.
            state: The name of the state, for example "PROGRESS".
            meta: Values for `AsyncResult.info`.
            others: Refused.
        """
        refuse("update_state", others, {}, ArgumentsError, CELERY_GUIDE)
        report_state(self, task_id, state, meta)

    def call_with(self, options: Mapping[str, Any]) -> Call[..., Any]:
        """Return the task with options of `apply_async`, as qbull has them.

        Args:
            options: The options. Those that qbull cannot keep are refused.
        """
        given = {name: value for name, value in options.items() if value is not None}
        refuse(
            "apply_async",
            {
                name: value
                for name, value in given.items()
                if name in CALLBACK_OPTIONS or call_option_support(name).level == "refused"
            },
            CELERY_CALL_HINTS,
            ArgumentsError,
            CELERY_GUIDE,
        )
        home = self.app.home_of(self.name, given.get("queue") or self.traits.queue)
        made = options_of(self.app, given, self._priority())
        return Call(home, home.tasks[self.name], made)

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
            wait = max((_aware(self.app, eta) or eta).timestamp() - datetime.now(UTC).timestamp(), 0)
        cause = exc or sys.exc_info()[1]
        raise Retry(wait, describe(cause) if cause is not None else "") from exc

    def replace(self, sig: Any) -> Any:
        """End this run and let other tasks do its work: their result is the result of this job.

        It raises, unless an override of `on_replace` returns.

        Args:
            sig: A signature, a chain, a group or a chord. The result of a group is a list.
        """
        return self.on_replace(signature(sig, app=self.app))

    @property
    def _has_own_apply_async(self) -> bool:
        return type(self).apply_async is not CeleryTask.apply_async

    def _enqueue_canvas(
        self, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> Any:
        """Enqueue a call that has callbacks, or run it here with task_always_eager."""
        from qbull.compat.celery.canvas_flow import enqueue_canvas

        call = Signature(self, args, kwargs)
        call.is_called = True
        given = {name: value for name, value in options.items() if value is not None}
        return enqueue_canvas(self.app, call, (), {}, given)

    def _priority(self) -> int | None:
        own = self.traits.priority
        return self.app.conf.task_default_priority if own is None else own


def options_of(app: Celery, given: Mapping[str, Any], priority: int | None) -> Options:
    """Return options of `apply_async` as qbull has them. `priority` is for calls that have none."""
    expires, own = given.get("expires"), given.get("priority")
    priority = priority if own is None else own
    return Options(
        delay=given.get("countdown"),
        at=_aware(app, given.get("eta")),
        priority=priority_of(priority),
        id=given.get("task_id"),
        timeout=given.get("time_limit"),
        headers=headers_of(given.get("headers"), given.get("soft_time_limit"), priority),
        expires=_aware(app, expires) if isinstance(expires, datetime) else expires,
    )


def _aware(app: Celery, moment: datetime | None) -> datetime | None:
    """Return a time with a zone. One without it is in conf.timezone, as in Celery."""
    if moment is None or moment.utcoffset() is not None:
        return moment
    return moment.replace(tzinfo=ZoneInfo(app.conf.zone))
