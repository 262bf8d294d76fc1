"""Queue: enqueue functions with the API of RQ. Workers run only functions that are registered.

RQ's workers import any function that a job names. Here a job names a task, and a task is a declared function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from qbull.app import App
from qbull.compat.refusal import refuse
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.dependency import send_call
from qbull.compat.rq.enqueue_options import ENQUEUE_KEYWORDS, RqEnqueueOptions
from qbull.compat.rq.exceptions import DuplicateJobError
from qbull.compat.rq.functions import (
    NO_RETRIES,
    Function,
    check_serializer,
    declare_function,
    function_behind,
    functions_of,
    name_of,
    seconds_of,
)
from qbull.compat.rq.instead import RQ_CALL_HINTS, RQ_GUIDE, RQ_QUEUE_ATTRIBUTE_HINTS, RQ_QUEUE_HINTS
from qbull.compat.rq.job import Job
from qbull.compat.rq.queued_jobs import QueuedJobs
from qbull.compat.rq.run import callbacks_of, wrapped
from qbull.errors import ArgumentsError, ConfigError, DeclarationError, NotFound
from qbull.job import Job as Handle
from qbull.produce.enqueue import Calling
from qbull.task import Task

DEFAULT_TIMEOUT_SECONDS = 180
"""The default of RQ."""


class Queue(QueuedJobs):
    """`Queue("mail", connection=app)`: a queue of the app, which is declared here if it is not yet.

    Args:
        name: The name of the queue.
        connection: The app.
        default_timeout: The timeout of its jobs in seconds, or for example "3m"; 180 by default.
        serializer: "json" or a class for JSON, which is the only format; others are refused.
        is_async: False runs each call before `enqueue` returns, in a thread of this process. For tests.
        others: Refused, with a hint at the replacement.
    """

    DEFAULT_TIMEOUT = DEFAULT_TIMEOUT_SECONDS
    _class_hints = RQ_QUEUE_ATTRIBUTE_HINTS

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        default_timeout: int | str | None = None,
        serializer: Any = None,
        is_async: bool = True,
        **others: Any,
    ) -> None:
        self.serializer = check_serializer("Queue", serializer)
        given = {name: value for name, value in others.items() if value is not None}
        refuse("Queue", given, RQ_QUEUE_HINTS, ConfigError, RQ_GUIDE)
        if not isinstance(connection, App):
            raise ConfigError(
                f'Queue("{name}", connection={_shown(connection)}): pass the app: '
                'connection=qbull.App("redis://…"); workers load it as MODULE:APP'
            )
        timeout = seconds_of(DEFAULT_TIMEOUT_SECONDS if default_timeout is None else default_timeout)
        queue = connection.queues.get(name) or connection.queue(name, retry=NO_RETRIES, timeout=timeout)
        super().__init__(connection, queue)
        self._is_async = is_async
        # The queue may have been declared before, with another timeout.
        self._own_timeout = None if default_timeout is None or queue.settings.timeout == timeout else timeout

    @property
    def is_async(self) -> bool:
        return self._is_async

    @classmethod
    def all(cls, connection: App, **others: Any) -> list[Queue]:
        """All queues that the app declares.

        Args:
            connection: The app.
            others: Refused, as with `Queue`.
        """
        return [cls(name, connection=connection, **others) for name in connection.queues]

    def register(self, *functions: Callable[..., Any] | ModuleType) -> None:
        """Let workers run functions.

        Args:
            functions: Functions, or modules for all functions that they define.
        """
        for given in functions:
            for function in functions_of(given) if isinstance(given, ModuleType) else [given]:
                name = name_of(function)
                if name not in self.queue.tasks:
                    declare_function(self.queue, name, wrapped(self.queue, function))
                elif (
                    "<locals>" in function.__qualname__
                    and function_behind(self.queue.tasks[name]) is not function
                ):
                    raise DeclarationError(
                        f'queue "{self.name}": another function "{name}" is registered already; '
                        "give it another name, or call the function around it once for each app"
                    )

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

    def create_job(
        self,
        func: Function,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: int | str | None = None,
        job_id: str | None = None,
        **options: Any,
    ) -> CreatedJob:
        """Make a job for `enqueue_job` or `schedule_job`.

        Args:
            func: A registered function, or its name.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.
            timeout: Seconds that one run may take, or for example "3m".
            job_id: The id of the job; a new one by default.
            options: The other options of `enqueue`.
        """
        return Job.create(func, args, kwargs, id=job_id, timeout=timeout, **options)

    def enqueue_job(
        self, job: CreatedJob, pipeline: Any = None, at_front: bool = False, unique: bool = False
    ) -> Job:
        """Enqueue a job of `Job.create` or `create_job`.

        Args:
            job: The job.
            pipeline: Refused: each call is complete when it is sent.
            at_front: Run it before others.
            unique: Raise DuplicateJobError if there is a job with its id.
        """
        return self._send_created(job, pipeline, unique=unique, at_front=at_front)

    def schedule_job(
        self, job: CreatedJob, datetime: datetime, pipeline: Any = None, unique: bool = False
    ) -> Job:
        """Enqueue a job that runs at a time.

        Args:
            job: The job.
            datetime: The time. Without a zone it is in the machine's zone, as in RQ.
            pipeline: Refused: each call is complete when it is sent.
            unique: Raise DuplicateJobError if there is a job with its id.
        """
        return self._send_created(job, pipeline, unique=unique, at=datetime.astimezone())

    def _send_created(
        self,
        job: CreatedJob,
        pipeline: Any,
        *,
        unique: bool,
        at_front: bool = False,
        at: datetime | None = None,
    ) -> Job:
        if pipeline is not None:
            refuse("enqueue_job", {"pipeline": pipeline}, RQ_CALL_HINTS, ArgumentsError, RQ_GUIDE)
        if unique:
            job.check_own_id()
        options = _options_of(job)
        options = replace(options, unique=unique or options.unique, at_front=at_front or options.at_front)
        job.sent = self._send(job.function, job.args, job.kwargs, options, at)
        return job.sent

    @staticmethod
    def prepare_data(
        func: Function,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: int | str | None = None,
        job_id: str | None = None,
        **options: Any,
    ) -> CreatedJob:
        """A call for `enqueue_many`.

        Args:
            func: A registered function, or its name.
            args: Positional arguments of the function.
            kwargs: Keyword arguments of the function.
            timeout: Seconds that one run may take, or for example "3m".
            job_id: The id of the job; a new one by default.
            options: The other options of `enqueue`.
        """
        return Job.create(func, args, kwargs, id=job_id, timeout=timeout, **options)

    def enqueue_many(
        self, job_datas: Iterable[CreatedJob], pipeline: Any = None, group_id: str | None = None
    ) -> list[Job]:
        """Enqueue calls of `prepare_data` together. All of them are checked before the first one is sent.

        Args:
            job_datas: The calls.
            pipeline: Refused: each call is complete when it is sent.
            group_id: The name of their group, which `Group.enqueue_many` gives.
        """
        if pipeline is not None:
            refuse("enqueue_many", {"pipeline": pipeline}, RQ_CALL_HINTS, ArgumentsError, RQ_GUIDE)
        jobs = list(job_datas)
        self.check_calls(jobs)

        async def send_all() -> list[Handle[Any]]:
            return await asyncio.gather(*(self._sending(*call) for call in calls))

        calls = [(job.function, job.args, job.kwargs, _options_of(job, group_id)) for job in jobs]
        handles = self.app.run_sync(send_all())
        self._run_now()
        return [Job(self.app, handle) for handle in handles]

    def check_calls(self, calls: Iterable[CreatedJob]) -> None:
        """Refuse calls that do not fit their functions.

        Args:
            calls: The calls.
        """
        for call in calls:
            self.task_of(call.function).check(*call.args, **call.kwargs)

    def _enqueue(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        at: datetime | None = None,
        delay: float | None = None,
    ) -> Job:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in ENQUEUE_KEYWORDS}
        options = RqEnqueueOptions.of("enqueue", own)
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
        handle = self.app.run_sync(self._sending(function, args, kwargs, options, at, delay))
        self._run_now()
        return Job(self.app, handle)

    def _run_now(self) -> None:
        """Run the waiting jobs in this process, if the queue is not asynchronous."""
        if not self._is_async:
            from qbull.compat.rq.worker import Worker  # It needs Queue.

            Worker(self).work(burst=True)

    async def _sending(
        self,
        function: Function,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: RqEnqueueOptions,
        at: datetime | None = None,
        delay: float | None = None,
    ) -> Handle[Any]:
        options.check_retention(self.queue)
        if options.job_timeout is None and self._own_timeout is not None:
            options = replace(options, job_timeout=self._own_timeout)
        call: Calling[..., Any] = Calling(self.queue, self.task_of(function).spec, options.options(at, delay))
        handle = await send_call(self.queue, call, options, args, kwargs)
        if options.unique and not handle.created:
            raise DuplicateJobError(f'queue "{self.name}": there is a job {handle.id} already')
        return handle


def _options_of(job: CreatedJob, group: str | None = None) -> RqEnqueueOptions:
    options = RqEnqueueOptions.of("Job.create", {**job.options, "job_id": job.id})
    return replace(options, group_id=group)


def _shown(connection: object) -> str:
    """A connection in an error message. The text of a Redis client takes many lines."""
    return "None" if connection is None else f"{type(connection).__name__}(…)"
