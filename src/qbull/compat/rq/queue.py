"""Queue: enqueue functions with the API of RQ. Workers run only functions that are registered.

RQ's workers import any function that a job names. Here a job names a task, and a task is a declared function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from qbull.app import App
from qbull.compat.refusal import refuse, refuse_attribute
from qbull.compat.rq.class_hints import HintingClass
from qbull.compat.rq.created import CreatedJob
from qbull.compat.rq.dependency import send_call
from qbull.compat.rq.enqueue_options import RqEnqueueOptions
from qbull.compat.rq.exceptions import DuplicateJobError
from qbull.compat.rq.functions import (
    NO_RETRIES,
    Function,
    check_serializer,
    declare_function,
    functions_of,
    name_of,
    seconds_of,
)
from qbull.compat.rq.instead import RQ_CALL_HINTS, RQ_GUIDE, RQ_QUEUE_ATTRIBUTE_HINTS, RQ_QUEUE_HINTS
from qbull.compat.rq.job import MAX_LISTED_JOBS, Job, find_job
from qbull.compat.rq.run import callbacks_of, wrapped
from qbull.errors import ArgumentsError, ConfigError, Conflict, NotFound
from qbull.job import Job as Handle
from qbull.produce.enqueue import Calling
from qbull.task import Task

REGISTRIES = {
    "failed_job_registry": "FailedJobRegistry",
    "finished_job_registry": "FinishedJobRegistry",
    "started_job_registry": "StartedJobRegistry",
    "scheduled_job_registry": "ScheduledJobRegistry",
    "deferred_job_registry": "DeferredJobRegistry",
    "canceled_job_registry": "CanceledJobRegistry",
}
"""Attributes of a queue, and the classes of qbull.compat.rq.registry that they are."""
DEFAULT_TIMEOUT_SECONDS = 180
"""The default of RQ."""


class Queue(metaclass=HintingClass):
    """`Queue("mail", connection=app)`: a queue of the app, which is declared here if it is not yet.

    Args:
        name: The name of the queue.
        connection: The app.
        default_timeout: The timeout of its jobs in seconds, or for example "3m"; 180 by default.
        serializer: "json" or a class for JSON, which is the only format; others are refused.
        others: Refused, with a hint at the replacement.
    """

    _class_hints = RQ_QUEUE_ATTRIBUTE_HINTS

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        default_timeout: int | str | None = None,
        serializer: Any = None,
        **others: Any,
    ) -> None:
        check_serializer("Queue", serializer)
        given = {name: value for name, value in others.items() if value is not None}
        refuse("Queue", given, RQ_QUEUE_HINTS, ConfigError, RQ_GUIDE)
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

    def __str__(self) -> str:
        return f"<Queue {self.name}>"

    def __lt__(self, other: Queue) -> bool:
        return self.name < other.name

    @property
    def connection(self) -> App:
        return self.app

    def is_empty(self) -> bool:
        """Whether no job waits."""
        return self.count == 0

    @classmethod
    def all(cls, connection: App, **others: Any) -> list[Queue]:
        """All queues that the app declares.

        Args:
            connection: The app.
            others: Refused, as with `Queue`.
        """
        return [cls(name, connection=connection, **others) for name in connection.queues]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name not in REGISTRIES:
            refuse_attribute(self, name, RQ_QUEUE_ATTRIBUTE_HINTS)
        from qbull.compat.rq import registry  # It needs Queue.

        return getattr(registry, REGISTRIES[name])(queue=self)

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
        return self._send(job.function, job.args, job.kwargs, _options_of(job))

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
            group_id: Refused: use `qbull.group`.
        """
        given = {"pipeline": pipeline, "group_id": group_id}
        refuse(
            "enqueue_many",
            {name: value for name, value in given.items() if value is not None},
            RQ_CALL_HINTS,
            ArgumentsError,
            RQ_GUIDE,
        )
        jobs = list(job_datas)
        for job in jobs:
            self.task_of(job.function).check(*job.args, **job.kwargs)

        async def send_all() -> list[Handle[Any]]:
            return await asyncio.gather(*(self._sending(*call) for call in calls))

        calls = [(job.function, job.args, job.kwargs, _options_of(job)) for job in jobs]
        return [Job(self.app, handle) for handle in self.app.run_sync(send_all())]

    def empty(self) -> int:
        """Delete all waiting jobs. Returns how many."""
        deleted = 0
        while jobs := self.get_jobs():
            for job in jobs:
                with suppress(NotFound, Conflict):
                    job.delete()
                    deleted += 1
        return deleted

    def delete(self, delete_jobs: bool = True) -> None:
        """Delete all waiting jobs. The queue itself stays as long as an app declares it.

        Args:
            delete_jobs: False does nothing.
        """
        if delete_jobs:
            self.empty()

    def get_job_position(self, job_or_id: Job | str) -> int | None:
        """How many waiting jobs are before a job; None if it does not wait.

        Args:
            job_or_id: The job or its id.
        """
        job = self.fetch_job(job_or_id) if isinstance(job_or_id, str) else job_or_id
        return None if job is None else job.get_position()

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """The ids of waiting jobs, in the order in which they will run.

        Args:
            offset: How many to leave out.
            length: How many at most; -1 for up to 1,000.
        """
        end = offset + (MAX_LISTED_JOBS if length < 0 else length)
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
        return Job(self.app, self.app.run_sync(self._sending(function, args, kwargs, options, at, delay)))

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
        call: Calling[..., Any] = Calling(self.queue, self.task_of(function).spec, options.options(at, delay))
        handle = await send_call(self.queue, call, options, args, kwargs)
        if options.unique and not handle.created:
            raise DuplicateJobError(f'queue "{self.name}": there is a job {handle.id} already')
        return handle


def _options_of(job: CreatedJob) -> RqEnqueueOptions:
    return RqEnqueueOptions.of("Job.create", {**job.options, "job_id": job.id})
