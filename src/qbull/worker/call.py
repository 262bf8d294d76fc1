"""Call: run the user's function on the loop, in a thread or in a process, and return its encoded result."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from qbull.codecs.context import payload_context, result_context
from qbull.codecs.offload import StoredResult
from qbull.core.outcome import AlreadyDone, ContinuedAs, Suspended, Undeliverable
from qbull.core.task import TaskSpec
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import PayloadError
from qbull.worker.assignment import Assignment
from qbull.worker.cpu_pool import ProcessPool
from qbull.worker.current import RunningJob, current_job
from qbull.worker.slot import StartTooLate
from qbull.worker.thread_pool import ThreadPool


class TaskCaller:
    """For one queue, with the codecs, the middleware and the result store of its app."""

    def __init__(self, assignment: Assignment) -> None:
        self._results = assignment.results
        self._middleware = assignment.middleware
        self._codecs = assignment.codecs
        self._has_codecs = assignment.codecs.used
        self._hooked = bool(assignment.middleware.around_call)
        self._limit = assignment.payload_limit if assignment.results is None else sys.maxsize
        self._name = f"qbull-{assignment.settings.name}"
        self._threads = ThreadPool(assignment.settings.concurrency, self._name)
        self._pool = ProcessPool(assignment.lifespans)
        self._debug = assignment.debug

    async def __call__(
        self, task: TaskSpec, args: list[Any], kwargs: dict[str, Any], job: RunningJob
    ) -> bytes | StoredResult:
        result = await self._result(task, args, kwargs, job)
        if self._has_codecs:
            result = self._protected(task, job, result)
        if self._results is None or len(result) <= self._results.over:
            return result
        return StoredResult(str(await self._results.put(job.queue, job.id.decode(), result)))

    async def within_hooks(
        self, task: TaskSpec, args: list[Any], kwargs: dict[str, Any], job: RunningJob
    ) -> bytes | StoredResult:
        """Call the task inside the user's middleware."""
        swallowed = self._protected(task, job, b"null") if self._has_codecs else b"null"
        return await self._middleware.run(
            current_job(), partial(self, task, args, kwargs, job), swallowed=swallowed
        )

    def _protected(self, task: TaskSpec, job: RunningJob, result: bytes) -> bytes:
        return self._codecs.protect(result_context(job.queue, _id_of(job), task.name), result)

    async def _result(
        self, task: TaskSpec, args: list[Any], kwargs: dict[str, Any], job: RunningJob
    ) -> bytes:
        try:
            if task.kind == "async":
                function = task.function if not self._hooked else self._within_call_hooks(task)
                _check_start(job)
                value = await function(*args, **kwargs)
            elif task.kind == "thread" or self._debug:
                value = await self._in_thread(task, args, kwargs, job)
            else:
                return await self._pool.run(task, job, self._limit, self._decoded_payload(job))
        except (Exception, asyncio.CancelledError, Suspended, ContinuedAs):
            raise
        except AlreadyDone:
            return b"null"
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            if isinstance(error, BaseExceptionGroup) and error.split(AlreadyDone)[1] is None:
                return b"null"  # from a task group of the task's own
            raise RuntimeError(f"the task raised {error!r}") from error
        if value is None:
            return b"null"
        try:
            return task.signature.encode_result(value, self._limit)
        except PayloadError as error:
            raise Undeliverable(str(error)) from None

    def _within_call_hooks(self, task: TaskSpec) -> Callable[..., Any]:
        call = self._middleware.acall if task.kind == "async" else self._middleware.call
        return partial(call, current_job(), task.function)

    def _decoded_payload(self, job: RunningJob) -> bytes | None:
        """The arguments for a process, which has no keys; None if they are not encoded."""
        payload = job.body.payload
        if job.arguments is not None or not is_wrapped(payload):
            return job.arguments
        return self._codecs.open(payload_context(job.queue, _id_of(job), job.body), payload)

    async def _in_thread(
        self, task: TaskSpec, args: list[Any], kwargs: dict[str, Any], job: RunningJob
    ) -> Any:
        context = contextvars.copy_context()
        function = task.function if not self._hooked else self._within_call_hooks(task)

        def call() -> Any:
            _check_start(job)
            # Stopping a job sets `stopped` and then reads `in_thread`: one side always sees the other.
            job.in_thread = True
            try:
                if job.stopped:
                    raise RuntimeError("the job was stopped before it started")
                if job.thread_started is not None:
                    job.thread_started()
                return context.run(function, *args, **kwargs)
            except StopIteration as error:  # no future can carry it
                raise RuntimeError("the task raised StopIteration") from error
            finally:
                job.in_thread = False

        return await self._threads.run(call)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """Call a plain function that is a step of a coroutine."""
        context = contextvars.copy_context()
        return await self._threads.run(partial(context.run, call))

    def resize(self, threads: int) -> None:
        """Use a new thread pool. Functions that run in the old one finish there."""
        self._threads = self._threads.replace(threads, self._name)

    async def close(self) -> None:
        """Close the pools. A plain function that still runs cannot be stopped: its thread goes on alone, and
        the server refuses its outcome.
        """
        self._threads.close()
        await self._pool.close()


def _check_start(job: RunningJob) -> None:
    """Right before the first line of the task: its limits and its expiry allow the start until a moment."""
    if job.start_by < inf and time.monotonic() > job.start_by:
        raise StartTooLate


def _id_of(job: RunningJob) -> str:
    return job.id.decode("utf-8", "surrogateescape")
