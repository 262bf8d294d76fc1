"""A backend for Django's tasks (django.tasks, or django_tasks before Django 6): each task is a task of qbull
under its own name.

    TASKS = {
        "default": {
            "BACKEND": "qbull.contrib.django.tasks.QbullBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"url": "redis://localhost:6379/0", "transaction": "on_commit"},
        }
    }

Options: `app` ("module:app", an app of your own), or the arguments of a new one (`url`, `prefix`, `database`,
`durability`); and `transaction`, which is None (enqueue at once), "on_commit", or "outbox" (a row in the same
transaction; PostgreSQL).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from math import ceil
from traceback import format_exception
from typing import Any, TypeVar

import msgspec
from django.db import connection, transaction
from django.utils import timezone
from django.utils.module_loading import import_string
from msgspec.structs import replace

from qbull.app import App
from qbull.contrib.django import DjangoConnections
from qbull.contrib.django.task_errors import class_path_of, traceback_of
from qbull.core.codec import decode_untyped
from qbull.core.job_info import JobInfo
from qbull.core.outcome import Undeliverable
from qbull.core.retry import Retry
from qbull.errors import ConfigError, NotFound, PayloadError, TooLarge
from qbull.queue import Queue
from qbull.task import Call, Task
from qbull.worker.current import CurrentJob, current_job

try:
    from django import tasks as framework
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
except ImportError:
    import django_tasks as framework
    from django_tasks import base, exceptions, signals
    from django_tasks.backends.base import BaseTaskBackend

A = TypeVar("A")

NO_RETRIES = Retry(attempts=1)
ENQUEUED_AT_HEADER = "django.enqueued_at"  # in microseconds; the record of a job has milliseconds
BACKEND_OPTIONS = ("url", "prefix", "database", "durability")


class QbullBackend(BaseTaskBackend):  # type: ignore[misc]
    """Serves `QUEUES` with the queues of one app.

    It declares the queues that the app lacks, without retries, because Django's tasks have none.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(params.get("OPTIONS", {}))
        self.transaction = options.pop("transaction", None)
        if self.transaction not in (None, "on_commit", "outbox"):
            raise ConfigError(
                f'TASKS["{alias}"]: transaction={self.transaction!r}: use None, "on_commit" or "outbox"'
            )
        self.app = _app_of(alias, options)
        self._queues: dict[str, Queue] = {}
        self._tasks: dict[str, Any] = {}
        for name in sorted(self.queues or [base.DEFAULT_TASK_QUEUE_NAME]):
            self._add_queue(name)

    def _add_queue(self, name: str) -> None:
        """Declare a queue with all tasks, because Django can send a task to any queue."""
        queue = self._queues[name] = self.app.queues.get(name) or self.app.queue(name, retry=NO_RETRIES)
        for task in self._tasks.values():
            self._register(queue, task)

    def _register(self, queue: Queue, task: Any) -> None:
        if task.module_path not in queue.tasks:
            run = _arun if iscoroutinefunction(task.func) else _run
            queue.task(name=task.module_path)(_function_of(run, type(self)))

    def validate_task(self, task: Any) -> None:
        """Register a task in all queues. Django calls this for every task.

        With `QUEUES: []`, which means any queue, the queue of the task is declared too.

        Args:
            task: the task.
        """
        super().validate_task(task)
        self._tasks[task.module_path] = task
        if task.queue_name not in self._queues:
            self._add_queue(task.queue_name)
        for queue in self._queues.values():
            self._register(queue, task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task. The result is READY; its id is known before the job exists.

        Args:
            task: the task.
            args: its arguments.
            kwargs: its arguments by name.
        """
        call, result = self._call(task, args, kwargs)
        arguments = {"args": list(result.args), "kwargs": result.kwargs}
        call.check(**arguments)
        if self.transaction == "on_commit":
            transaction.on_commit(partial(call.enqueue_sync, **arguments))
        elif self.transaction is None:
            _blocking(partial(call.enqueue_sync, **arguments))
        else:
            call.enqueue_sync(**arguments)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task from asynchronous code.

        Only a transaction needs a thread, because transactions belong to threads.

        Args:
            task: the task.
            args: its arguments.
            kwargs: its arguments by name.
        """
        if self.transaction is not None:
            return await super().aenqueue(task, args, kwargs)
        call, result = self._call(task, args, kwargs)
        await call.enqueue(args=list(result.args), kwargs=result.kwargs)
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a job, from any process, as long as the queue keeps the job.

        Args:
            result_id: its id.
        """
        return _blocking(lambda: self.app.run_sync(self.aget_result(result_id)))

    async def aget_result(self, result_id: str) -> Any:
        """`get_result` from asynchronous code.

        Args:
            result_id: its id.
        """
        name, _, id = result_id.partition(":")
        queue = self._queues.get(name) or await self._queue_elsewhere(name)
        there = await self.app._client().find(queue.settings, id) if queue is not None and id else None
        if queue is None or there is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        found = there[1]
        info = found.info(name, None)
        body = found.body()
        payload = decode_untyped(queue._payloads.open(id, body))
        value = await queue.job(id).result(timeout=5) if info.state == "completed" else None
        return self._result_of(info, payload, _enqueued_at(body.headers, info.created_at), value)

    async def _queue_elsewhere(self, name: str) -> Queue | None:
        """A queue that only another process has declared, which is possible with `QUEUES: []`."""
        if self.queues or not name:
            return None
        store = self.app._client().store
        await store.open()
        try:
            return self.app._undeclared_queue(await store.settings(name))
        except (NotFound, ConfigError):
            return None

    def _result_of(self, info: JobInfo, payload: Mapping[str, Any], enqueued_at: datetime, value: Any) -> Any:
        """A job as a result of Django."""
        declared = import_string(info.task).using(queue_name=info.queue)
        result = self._result(declared, info.id, payload["args"], payload["kwargs"], enqueued_at)
        workers = [attempt.worker for attempt in info.history] + ([info.worker] if info.worker else [])
        facts: dict[str, Any] = {
            "status": _status(info),
            "started_at": info.started_at,
            "last_attempted_at": info.started_at,
            "finished_at": info.finished_at,
            "worker_ids": workers,
        }
        if info.state == "completed":
            facts["_return_value"] = value
        if info.state in ("failed", "cancelled"):
            facts["errors"] = [
                base.TaskError(exception_class_path=class_path_of(info), traceback=traceback_of(info))
            ]
        for name, value in facts.items():
            object.__setattr__(result, name, value)
        return result

    def _call(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call[..., Any], Any]:
        self.validate_task(task)
        queue = self._queues[task.queue_name]
        id = queue._producer.new_id()
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        call = Task[..., Any](queue, queue.tasks[task.module_path]).options(
            id=id,
            priority=_priority(task.priority),
            at=run_after,
            transaction=connection if self.transaction == "outbox" else None,
        )
        now = timezone.now()
        options = replace(call._options, headers={ENQUEUED_AT_HEADER: now.isoformat()})
        return Call(queue, call.spec, options), self._result(task, id, args, kwargs, now)

    def _result(
        self, task: Any, id: str, args: Sequence[Any], kwargs: Mapping[str, Any], enqueued_at: datetime
    ) -> Any:
        return base.TaskResult(
            task=task,
            id=f"{task.queue_name}:{id}",
            status=base.TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


def configured_backend() -> QbullBackend:
    """The backend of qbull in `TASKS`."""
    found = [each for each in framework.task_backends.all() if isinstance(each, QbullBackend)]
    if len(found) != 1:
        raise ConfigError(
            f"TASKS has {len(found)} backends of qbull; a worker serves one: "
            'give it one, or an app of your own with "qbull worker module:app"'
        )
    return found[0]


def _function_of(run: Any, backend: type) -> Any:
    """The function that qbull calls for every task of Django's."""
    if iscoroutinefunction(run):

        async def acall(args: list[Any], kwargs: dict[str, Any]) -> Any:
            return await run(backend, args, kwargs)

        return acall

    def call(args: list[Any], kwargs: dict[str, Any]) -> Any:
        return run(backend, args, kwargs)

    return call


def _run(backend: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    task, result, context = _begun(current_job(), args, kwargs)
    signals.task_started.send(backend, task_result=result)
    try:
        value = _encoded(task, task.func(*context, *args, **kwargs))
    except BaseException as error:
        signals.task_finished.send(backend, task_result=_ended(result, error))
        raise
    signals.task_finished.send(backend, task_result=_ended(result))
    return value


async def _arun(backend: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    task, result, context = _begun(current_job(), args, kwargs)
    await signals.task_started.asend(backend, task_result=result)
    try:
        value = _encoded(task, await task.func(*context, *args, **kwargs))
    except BaseException as error:
        await signals.task_finished.asend(backend, task_result=_ended(result, error))
        raise
    await signals.task_finished.asend(backend, task_result=_ended(result))
    return value


def _blocking(call: Callable[[], A]) -> A:
    """Make a synchronous call. Django allows it in asynchronous code too, where it blocks the event loop."""
    if asyncio._get_running_loop() is None:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, call).result()


def _enqueued_at(headers: Mapping[str, str] | None, otherwise: datetime) -> datetime:
    known = (headers or {}).get(ENQUEUED_AT_HEADER)
    return datetime.fromisoformat(known) if known else otherwise


def _encoded(task: Any, value: Any) -> msgspec.Raw:
    """Encode a result before the end of the task is announced, so that it can still fail."""
    backend = task.get_backend()
    limit = backend.app.payload_limit if backend.app.results is None else sys.maxsize
    signature = backend._queues[task.queue_name].tasks[task.module_path].signature
    try:
        return msgspec.Raw(signature.encode_result(value, limit))
    except TooLarge as error:
        raise Undeliverable(str(error)) from None
    except PayloadError as error:
        raise TypeError(f"Unsupported type: {error}") from None  # as Django's own backends


def _begun(job: CurrentJob, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any, tuple[Any, ...]]:
    """The running task of Django, its result so far, and its context if it takes one."""
    task = import_string(job.task).using(queue_name=job.queue)
    enqueued_at = _enqueued_at(job.headers, job.enqueued_at)
    result = task.get_backend()._result(task, job.id, args, kwargs, enqueued_at)
    now = timezone.now()
    for name, value in (
        ("status", base.TaskResultStatus.RUNNING),
        ("started_at", now),
        ("last_attempted_at", now),
        ("worker_ids", ["qbull"] * job.attempt),
    ):
        object.__setattr__(result, name, value)
    return task, result, (base.TaskContext(task_result=result),) if task.takes_context else ()


def _ended(result: Any, error: BaseException | None = None) -> Any:
    """The result at the end of a run, as receivers of signals see it."""
    status = base.TaskResultStatus.SUCCESSFUL
    if error is not None:
        status = base.TaskResultStatus.FAILED
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(
            base.TaskError(exception_class_path=path, traceback="".join(format_exception(error)))
        )
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    return result


def _app_of(alias: str, options: dict[str, Any]) -> App:
    named = options.pop("app", None)
    strange = [name for name in options if named is not None or name not in BACKEND_OPTIONS]
    if strange:
        raise ConfigError(
            f'TASKS["{alias}"]: OPTIONS has {", ".join(strange)}; it may have transaction, '
            f"and either app or {', '.join(BACKEND_OPTIONS)}"
        )
    if named is None:
        return App(**options, middleware=[DjangoConnections()])
    module, _, name = named.partition(":")
    app = getattr(import_module(module), name, None) if name else None
    if not isinstance(app, App):
        raise NotFound(f'TASKS["{alias}"]: app="{named}": is no qbull.App; give "module:app"')
    return app


def _status(info: JobInfo) -> Any:
    status = base.TaskResultStatus
    match info.state:
        case "completed":
            return status.SUCCESSFUL
        case "failed" | "cancelled":
            return status.FAILED
        case "active":
            return status.RUNNING
        case _:
            return status.READY


def _priority(priority: int) -> int:
    """Django's 100 (first) to -100 (last) as qbull's 1 to 10; 0 is 5."""
    return 5 - ceil(priority * 4 / 100) if priority > 0 else 5 + ceil(-priority * 5 / 100)
