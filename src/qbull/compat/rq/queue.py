"""Queue and @job: enqueue functions with the API of RQ. Workers run only functions that are registered.

RQ's workers import any function that a job names. Here a job names a task, and a task is a declared function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from qbull.app import App
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.compat.rq.instead import RQ_CALL_HINTS, RQ_GUIDE, RQ_QUEUE_ATTRIBUTE_HINTS, RQ_QUEUE_HINTS
from qbull.compat.rq.job import Job, find_job
from qbull.compat.rq.retry import RETRY_WAITS_HEADER, Retry, retrying
from qbull.compat.sending import enqueue_with_headers
from qbull.core.options import Options
from qbull.core.retry import Retry as Rule
from qbull.errors import MAX_DELAY_SECONDS, ArgumentsError, ConfigError, DeclarationError, NotFound
from qbull.task import Task

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any] | str

NO_RETRIES = Rule(attempts=1)
FRONT_PRIORITY = 1
"""The priority of jobs with at_front=True; other jobs have 5."""
DEFAULT_TIMEOUT_SECONDS = 180
"""The default of RQ."""
RQ_UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class RqEnqueueOptions:
    """The keywords of `enqueue` that are supported here."""

    job_timeout: int | str | None = None
    ttl: float | None = None
    job_id: str | None = None
    at_front: bool = False
    retry: Retry | None = None

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

    def headers(self) -> dict[str, str]:
        return {} if self.retry is None else {RETRY_WAITS_HEADER: self.retry.header()}


class Queue:
    """`Queue("mail", connection=app)`: a queue of the app, which is declared here if it is not yet.

    Args:
        name: The name of the queue.
        connection: The app.
        default_timeout: The timeout of its jobs in seconds, or for example "3m"; 180 by default.
        others: Refused, with a hint at the replacement.
    """

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
            for function in _functions(given) if isinstance(given, ModuleType) else [given]:
                if name_of(function) not in self.queue.tasks:
                    self.queue.task(name=name_of(function), retry=NO_RETRIES)(retrying(function))

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
            self.queue, task.spec, options.options(at, delay), options.headers(), args, kwargs
        )
        return Job(self.app, self.app.run_sync(enqueue))


def job(
    queue: Queue | str,
    connection: App | None = None,
    timeout: int | str | None = None,
    **others: Any,
) -> Callable[[F], F]:
    """`@job("mail", connection=app)`: register the function, and add `delay` to it.

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

        function.delay = delay  # type: ignore[attr-defined]
        return function

    return declare


def name_of(function: Function) -> str:
    """Return the name that RQ gives a function: its module and its qualified name."""
    if isinstance(function, str):
        return function
    if inspect.ismethod(function) or not hasattr(function, "__qualname__") or "<" in function.__qualname__:
        raise DeclarationError(
            f"{function!r}: a task must be a function of a module; a worker cannot find methods and inner "
            "functions by name"
        )
    return f"{function.__module__}.{function.__qualname__}"


def seconds_of(timeout: int | str) -> float:
    """Parse a timeout such as 180, "180", "3m" or "1h"; -1 means no limit."""
    if isinstance(timeout, str):
        number, unit = (
            (timeout[:-1], timeout[-1:].lower())
            if timeout[-1:].lower() in RQ_UNIT_SECONDS
            else (timeout, "s")
        )
        try:
            timeout = int(number) * RQ_UNIT_SECONDS[unit]
        except ValueError:
            raise ArgumentsError(
                f'job_timeout="{timeout}": give seconds, or for example "3m" or "1h"'
            ) from None
    return MAX_DELAY_SECONDS if timeout == -1 else timeout


def _functions(module: ModuleType) -> list[Callable[..., Any]]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
