"""Queue and @job: enqueue functions with the API of RQ. Workers run only functions that are registered.

RQ's workers import any function that a job names. Here a job names a task, and a task is a declared function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from qbull.app import App
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.compat.rq.class_hints import HintingClass
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.functions import (
    NO_RETRIES,
    Function,
    declare_function,
    functions_of,
    name_of,
    seconds_of,
)
from qbull.compat.rq.instead import RQ_CALL_HINTS, RQ_GUIDE, RQ_QUEUE_ATTRIBUTE_HINTS, RQ_QUEUE_HINTS
from qbull.compat.rq.job import Job, find_job
from qbull.compat.rq.retry import RETRY_WAITS_HEADER, Retry
from qbull.compat.rq.run import REPEAT_HEADER, Callback, Repeat, callback_headers, callbacks_of, wrapped
from qbull.compat.sending import enqueue_with_headers
from qbull.core.options import Options
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.queue import Queue as QbullQueue
from qbull.task import Task

F = TypeVar("F", bound=Callable[..., Any])

FRONT_PRIORITY = 1
"""The priority of jobs with at_front=True; other jobs have 5."""
DEFAULT_TIMEOUT_SECONDS = 180
"""The default of RQ."""


@dataclass(frozen=True)
class RqEnqueueOptions:
    """The keywords of `enqueue` that are supported here."""

    job_timeout: int | str | None = None
    ttl: float | None = None
    job_id: str | None = None
    at_front: bool = False
    retry: Retry | None = None
    repeat: Repeat | None = None
    on_success: Callback | Callable[..., Any] | None = None
    on_failure: Callback | Callable[..., Any] | None = None

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> RqEnqueueOptions:
        known = {field.name for field in fields(cls)}
        refuse(
            what, {n: v for n, v in given.items() if n not in known}, RQ_CALL_HINTS, ArgumentsError, RQ_GUIDE
        )
        options = cls(**given)
        if options.retry is not None and not isinstance(options.retry, Retry):
            raise ArgumentsError(f"{what}(retry={options.retry!r}): use Retry(…) of qbull.compat.rq")
        return options

    def options(self, at: datetime | None, delay: float | None) -> Options:
        return Options(
            delay=delay,
            at=at,
            priority=FRONT_PRIORITY if self.at_front else 5,
            id=self.job_id,
            timeout=None if self.job_timeout is None else seconds_of(self.job_timeout),
            expires=self.ttl,
        )

    def headers(self, queue: QbullQueue) -> dict[str, str]:
        headers = callback_headers(queue, self.on_success, self.on_failure)
        if self.retry is not None:
            headers[RETRY_WAITS_HEADER] = self.retry.header()
        if self.repeat is not None:
            headers[REPEAT_HEADER] = self.repeat.header()
        return headers


class Queue(metaclass=HintingClass):
    """`Queue("mail", connection=app)`: a queue of the app, which is declared here if it is not yet.

    Args:
        name: The name of the queue.
        connection: The app.
        default_timeout: The timeout of its jobs in seconds, or for example "3m"; 180 by default.
        others: Refused, with a hint at the replacement.
    """

    _class_hints = RQ_QUEUE_ATTRIBUTE_HINTS

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        default_timeout: int | str | None = None,
        **others: Any,
    ) -> None:
        refuse("Queue", others, RQ_QUEUE_HINTS, ConfigError, RQ_GUIDE)
        if not isinstance(connection, App):
            raise ConfigError(
                f'Queue("{name}", connection={connection!r}): pass the app: '
                'connection=qbull.App("redis://…"); workers load it as MODULE:APP'
            )
        self.name = name
        self.app = connection
        timeout = seconds_of(DEFAULT_TIMEOUT_SECONDS if default_timeout is None else default_timeout)
        self.queue = connection.queues.get(name) or connection.queue(name, retry=NO_RETRIES, timeout=timeout)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    @classmethod
    def all(cls, connection: App) -> list[Queue]:
        """All queues that the app declares.

        Args:
            connection: The app.
        """
        return [cls(name, connection=connection) for name in connection.queues]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        refuse_attribute(self, name, RQ_QUEUE_ATTRIBUTE_HINTS)

    @property
    def count(self) -> int:
        """The number of waiting jobs."""
        return self.app.run_sync(self.queue.stats()).waiting

    def register(self, *functions: Callable[..., Any] | ModuleType) -> None:
        """Let workers run functions.

        Args:
            functions: Functions, or modules for all functions that they define.
        """
        for given in functions:
            for function in functions_of(given) if isinstance(given, ModuleType) else [given]:
                if name_of(function) not in self.queue.tasks:
                    declare_function(self.queue, name_of(function), wrapped(self.queue, function))

    def register_callbacks(self, *functions: Callable[..., Any]) -> None:
        """Let workers call functions of `on_success` and `on_failure`.

        Args:
            functions: The functions.
        """
        callbacks_of(self.app).update({name_of(function): function for function in functions})

    def task_of(self, function: Function) -> Task[..., Any]:
        """Return a qbull task with `enqueue`, `options`, `step` and `enqueue_many`.

        Args:
            function: A registered function, or its name.
        """
        name = name_of(function)
        if name not in self.queue.tasks:
            raise NotFound(
                f'queue "{self.name}": "{name}" is not registered, so no worker would run it; '
                "add queue.register(function), or @job, in the module that workers load"
            )
        return Task(self.queue, self.queue.tasks[name])

    def enqueue(self, f: Function, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call. Keywords of RQ are options; all others are arguments of the function.

        Args:
            f: A registered function, or its name.
        """
        return self._enqueue(f, args, kwargs)

    def enqueue_in(self, time_delta: timedelta, func: Function, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call that runs after a delay.

        Args:
            time_delta: The delay.
            func: A registered function, or its name.
        """
        return self._enqueue(func, args, kwargs, delay=time_delta.total_seconds())

    def enqueue_at(self, datetime: datetime, f: Function, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call that runs at a time.

        Args:
            datetime: The time. Without a zone it is in the machine's zone, as in RQ.
            f: A registered function, or its name.
        """
        return self._enqueue(f, args, kwargs, at=datetime.astimezone())

    def enqueue_call(
        self,
        func: Function,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: int | str | None = None,
        **options: Any,
    ) -> Job:
        """Enqueue a call with the arguments of the function in `args` and `kwargs`.

        Args:
            func: A registered function, or its name.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.
            timeout: Seconds that one run may take, or for example "3m".
            options: The other options of `enqueue`.
        """
        rq_options = RqEnqueueOptions.of("enqueue_call", {"job_timeout": timeout} | options)
        return self._send(func, args or (), kwargs or {}, rq_options)

    def enqueue_job(self, job: CreatedJob) -> Job:
        """Enqueue a job of `Job.create`.

        Args:
            job: The job.
        """
        options = RqEnqueueOptions.of("Job.create", {**job.options, "job_id": job.id})
        return self._send(job.function, job.args, job.kwargs, options)

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """The ids of waiting jobs, in the order in which they will run.

        Args:
            offset: How many to leave out.
            length: How many at most; -1 for up to 1,000.
        """
        end = offset + (1000 if length < 0 else length)
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

    @property
    def failed_job_registry(self) -> Any:
        """The `FailedJobRegistry` of this queue."""
        return _registry("FailedJobRegistry", self)

    @property
    def finished_job_registry(self) -> Any:
        """The `FinishedJobRegistry` of this queue."""
        return _registry("FinishedJobRegistry", self)

    @property
    def started_job_registry(self) -> Any:
        """The `StartedJobRegistry` of this queue."""
        return _registry("StartedJobRegistry", self)

    @property
    def scheduled_job_registry(self) -> Any:
        """The `ScheduledJobRegistry` of this queue."""
        return _registry("ScheduledJobRegistry", self)

    @property
    def canceled_job_registry(self) -> Any:
        """The `CanceledJobRegistry` of this queue."""
        return _registry("CanceledJobRegistry", self)

    def fetch_job(self, job_id: str) -> Job | None:
        """Return a job of this queue, or None if it does not exist.

        Args:
            job_id: The id of the job.
        """
        try:
            return Job(self.app, self.app.run_sync(find_job(self.app, [self.queue], job_id)))
        except NotFound:
            return None

    def _enqueue(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: datetime | None = None,
        delay: float | None = None,
    ) -> Job:
        known = {field.name for field in fields(RqEnqueueOptions)} | RQ_CALL_HINTS.keys()
        options = RqEnqueueOptions.of("enqueue", {n: kwargs.pop(n) for n in list(kwargs) if n in known})
        # RQ's explicit form.
        if "args" in kwargs or "kwargs" in kwargs:
            if args or kwargs.keys() - {"args", "kwargs"}:
                raise ArgumentsError("enqueue(args=…, kwargs=…): pass all arguments there, or none")
            args, kwargs = tuple(kwargs.get("args") or ()), dict(kwargs.get("kwargs") or {})
        return self._send(function, args, kwargs, options, at, delay)

    def _send(
        self,
        function: Function,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: RqEnqueueOptions,
        at: datetime | None = None,
        delay: float | None = None,
    ) -> Job:
        task = self.task_of(function)
        enqueue = enqueue_with_headers(
            self.queue, task.spec, options.options(at, delay), options.headers(self.queue), args, kwargs
        )
        return Job(self.app, self.app.run_sync(enqueue))


def job(
    queue: Queue | str,
    connection: App | None = None,
    timeout: int | str | None = None,
    **others: Any,
) -> Callable[[F], F]:
    """`@job("mail", connection=app)`: register the function, and add `delay` and `enqueue` to it.

    Args:
        queue: The queue, or its name.
        connection: The app, if the queue is given by its name.
        timeout: Seconds that one run may take, or for example "3m".
        others: The other options of `enqueue`.
    """
    options = RqEnqueueOptions.of("@job", {"job_timeout": timeout} | others)
    home = queue if isinstance(queue, Queue) else Queue(queue, connection=connection)

    def declare(function: F) -> F:
        home.register(function)

        def delay(*args: Any, **kwargs: Any) -> Job:
            given = {n: kwargs.pop(n) for n in ("job_id", "at_front", "depends_on") if n in kwargs}
            both = {field.name: getattr(options, field.name) for field in fields(RqEnqueueOptions)} | given
            return home._send(function, args, kwargs, RqEnqueueOptions.of("delay", both))

        function.delay = function.enqueue = delay  # type: ignore[attr-defined]
        return function

    return declare


def _registry(name: str, queue: Queue) -> Any:
    from qbull.compat.rq import registry  # It needs Queue.

    return getattr(registry, name)(queue=queue)
