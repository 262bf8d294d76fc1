"""Inline: tasks run at the enqueue, in the same process and without a server.

The path of a job is real: arguments are checked and encoded, and middleware, codecs, `current_job()`, retries
and cron rules are those of a worker. Features of a server with several workers are missing: order, limits,
pauses, crashes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from qbull.app import App
from qbull.codecs.context import result_context
from qbull.core.outcome import AlreadyDone, ContinuedAs, Suspended, Undeliverable
from qbull.core.record import Ending, body_of
from qbull.core.schedule import Schedule
from qbull.core.task import TaskSpec
from qbull.errors import PayloadError, QbullError, RetryAfter
from qbull.produce.router import PlacedJob
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.tick import scheduled_run
from qbull.testing.enqueued import EnqueueRecorder
from qbull.testing.inline_client import InlineClient
from qbull.testing.inline_steps import InlineSteps, end_durable_run
from qbull.testing.memory_job import NO_HISTORY, InlineJob, InlineProgress
from qbull.testing.stand_in import StandIn, close_elsewhere
from qbull.worker.chunk import ChunkCaller
from qbull.worker.current import CurrentJob, RunningJob, current_job, running

A = TypeVar("A")

_later: ContextVar[list[InlineJob] | None] = ContextVar("qbull_inline_later", default=None)


class Inline(EnqueueRecorder, AbstractContextManager["Inline"]):
    """`with qbull.testing.inline(app) as jobs:` every task that is enqueued in the block runs at once.

    Delayed jobs wait for `advance()`.

    Args:
        app: the app.
        propagate: `enqueue` raises the exceptions of tasks; if False, jobs fail or are retried as with a
            worker.
        run: run jobs at once; if False, they wait for `run_due()`.
    """

    def __init__(self, app: App, *, run: bool = True, propagate: bool = True) -> None:
        super().__init__(app)
        self.kept: dict[tuple[str, str], InlineJob] = {}
        self.now_ms = int(time.time() * 1000)
        self._windows: dict[tuple[str, str], tuple[str, int]] = {}
        self._at_once = run
        self._propagate = propagate

    def __enter__(self) -> Inline:
        client = InlineClient(self)
        self._stand_in = StandIn(
            self.app, _make_client=lambda: client, run_sync=self._run_sync_of_app, worker=_NoWorker
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            close_elsewhere(self.app)
        finally:
            self._stand_in.undo()

    def now(self) -> datetime:
        """The time in the block: its start, plus the seconds of `advance()`."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    async def run_due(self) -> None:
        """Run all jobs that wait, and the jobs that they enqueue."""
        for kept in self._waiting():
            await self._run(kept)

    def run_due_sync(self) -> None:
        """`run_due` from synchronous code."""
        for kept in self._waiting():
            self._run_sync(kept)

    async def advance(self, seconds: float) -> None:
        """Let time pass: delayed jobs, retries and scheduled runs start, each at its time.

        Args:
            seconds: how far to move the clock.
        """
        for kept in self._passing(seconds):
            await self._run(kept)

    def advance_sync(self, seconds: float) -> None:
        """`advance` from synchronous code.

        Args:
            seconds: how far to move the clock.
        """
        for kept in self._passing(seconds):
            self._run_sync(kept)

    # For the client.

    async def _take(self, queue: str, placed: PlacedJob, history: Mapping[bytes, bytes] = NO_HISTORY) -> bool:
        """Add a job, with the history of a fork. Returns whether it is new."""
        id = placed.job.id
        created = (queue, id) not in self.kept
        self._note(queue, placed, id, created)
        if created:
            kept = self._keep(queue, placed.job)
            kept.continue_history(history)
            await self._launch(kept)
        return created

    def _keep(self, queue: str, job: NewJob) -> InlineJob:
        self.kept[queue, job.id] = kept = InlineJob(queue, job.id, job.record, self.now_ms)
        kept.wait(job.when, self.now_ms)
        return kept

    async def _launch(self, kept: InlineJob) -> None:
        """Run a waiting job now. Synchronous code runs it after its call instead."""
        if kept.state != "waiting" or not self._at_once:
            return
        later = _later.get()
        if later is not None:
            later.append(kept)
        else:
            await self._run(kept)

    def _window(self, queue: str, name: str) -> InlineJob | None:
        """The job that counts now, of several that ask for the same thing."""
        id, until = self._windows.get((queue, name), ("", 0))
        return self.kept.get((queue, id)) if self.now_ms < until else None

    def _open_window(self, queue: str, name: str, id: str, window_ms: int) -> None:
        self._windows[queue, name] = id, self.now_ms + window_ms

    # Running.

    async def _run(self, kept: InlineJob) -> None:
        """One attempt, in this event loop; a plain function in a thread. Then the jobs that it has called."""
        if not self.app.lifespan:
            await self._attempts(kept)
        else:
            await self.app.lifespan.start(cpu=True)
            try:
                await self._attempts(kept)
            finally:
                await self.app.lifespan.stop()
        for following in self._following(kept):
            await self._run(following)

    async def _attempts(self, kept: InlineJob) -> None:
        """One attempt, and another one each time that the job starts over."""
        await self._attempt(kept)
        while self._at_once and kept.is_anew:
            await self._attempt(kept)

    async def _attempt(self, kept: InlineJob) -> None:
        result, error = b"null", None
        try:
            task, function = self._ready(kept)
            hooks = self.app.middleware
            with self._current(kept, task) as job:
                call = partial(hooks.acall, job, function)
                if task.kind != "async":
                    call = partial(asyncio.to_thread, partial(hooks.call, job, function))
                result = self._encoded(task, await hooks.run(job, call, None))
        except (AlreadyDone, Suspended, ContinuedAs):
            pass
        except Exception as raised:
            error = raised
        if kept.durable is not None:
            if kept.sleeps() or kept.starts_anew():
                return
            error = await end_durable_run(kept.durable, error)
        self._settle(kept, result, error)

    def _run_sync(self, kept: InlineJob) -> None:
        """One attempt in this thread, without an event loop.

        A plain function is in the transaction of its caller then.
        """
        task = self._task(kept)
        if task is not None and task.kind == "async":
            _in_a_loop(self._run(kept))
            return
        with self.app.lifespan.running_sync():
            self._attempt_sync(kept)
            while self._at_once and kept.is_anew:
                self._attempt_sync(kept)
        for following in self._following(kept):
            self._run_sync(following)

    def _following(self, kept: InlineJob) -> Iterator[InlineJob]:
        """The jobs that it has called and, when one of them has ended, the job itself."""
        while self._at_once:
            called = [self.kept[one] for one in kept.called if one in self.kept]
            waiting = [one for one in called if one.state == "waiting"]
            if waiting:
                yield waiting[0]
            elif kept.is_answered:
                yield kept
            else:
                return

    def _cancel(self, kept: InlineJob, ending: Ending) -> None:
        """Cancel a job that does not run, and the jobs that it has called."""
        kept.finish("cancelled", ending, self.now_ms)
        self._tell_callers(kept)
        for one in kept.called:
            called = self.kept.get(one)
            if called is not None and called.state in ("waiting", "delayed"):
                self._cancel(called, Ending(0, 0.0, "", error="the job that called it was cancelled"))

    def _call(self, queue: str, job: NewJob) -> None:
        """Add a job that another one calls."""
        self._note(queue, PlacedJob(0, job), job.id, True)
        self._keep(queue, job)

    def _attempt_sync(self, kept: InlineJob) -> None:
        result, error = b"null", None
        try:
            task, function = self._ready(kept)
            with self._current(kept, task) as job:
                call = partial(self.app.middleware.call, job, function)
                result = self._encoded(task, self.app.middleware.run_sync(job, call, None, _in_a_loop))
        except (AlreadyDone, Suspended, ContinuedAs):
            pass
        except Exception as raised:
            error = raised
        if kept.durable is not None:
            if kept.sleeps() or kept.starts_anew():
                return
            error = _in_a_loop(end_durable_run(kept.durable, error))
        self._settle(kept, result, error)

    def _task(self, kept: InlineJob) -> TaskSpec | None:
        return self.app.queues[kept.queue].tasks.get(body_of(kept.record).task)

    def _ready(self, kept: InlineJob) -> tuple[TaskSpec, Callable[[], Any]]:
        """Its task, and the call of its function."""
        kept.state, kept.is_answered = "active", False
        body, task = body_of(kept.record), self._task(kept)
        if task is None:
            raise Undeliverable(f'no task "{body.task}" is declared in queue "{kept.queue}"')
        try:
            opened = self.app.queues[kept.queue]._payloads.open(kept.id, body)
            args, kwargs = task.signature.decode(opened)
        except PayloadError as error:
            raise Undeliverable(str(error)) from None
        function = task.function
        if isinstance(function, ChunkCaller):  # Nothing else will come that a chunk could wait for.
            function = ChunkCaller(function.name, function.function, 1, 0.0)
        return task, partial(function, *args, **kwargs)

    @contextmanager
    def _current(self, kept: InlineJob, task: TaskSpec) -> Iterator[CurrentJob]:
        """Make it the job that `current_job()` returns."""
        place = f"5{self.now_ms}-0".encode()
        job = RunningJob(kept.queue, place, kept.id.encode(), kept.record, body_of(kept.record))
        job.progress_sink = InlineProgress(kept, self.now_ms, self.app._codecs, task.signature.hooks)
        if task.durable:
            job.durable = kept.durable = InlineSteps(self.app, kept, self.now_ms, _in_a_loop, self._call).run(
                job
            )
        token = running.set(job)
        try:
            yield current_job()
        finally:
            running.reset(token)

    def _encoded(self, task: TaskSpec, value: Any) -> bytes:
        limit = self.app.payload_limit if self.app.results is None else 1 << 40
        try:
            return task.signature.encode_result(value, limit)
        except PayloadError as error:
            raise Undeliverable(str(error)) from None

    def _settle(self, kept: InlineJob, result: bytes, error: Exception | None) -> None:
        """Record the outcome of a run. Raises the exception of the task if it propagates."""
        task = self._task(kept)
        retry = task.retry if task is not None else self.app.queues[kept.queue].settings.retry
        if task is not None:
            result = self.app._codecs.protect(result_context(kept.queue, kept.id, task.name), result)
        self.app.middleware.tell(kept.settle(result, error, retry, self.now_ms))
        called_by = self._tell_callers(kept)
        if error is not None and self._propagate and not called_by and not isinstance(error, RetryAfter):
            raise error

    def _tell_callers(self, kept: InlineJob) -> bool:
        """Tell the jobs that have called it how it has ended. Returns whether there are any."""
        for caller, outcome in kept.outcome():
            if (caller.queue, caller.id) in self.kept:
                self.kept[caller.queue, caller.id].answer(caller.call, outcome)
        return any(caller.call for caller in body_of(kept.record).tells)

    def _waiting(self) -> Iterator[InlineJob]:
        while waiting := [kept for kept in self.kept.values() if kept.state == "waiting"]:
            yield waiting[0]

    def _passing(self, seconds: float) -> Iterator[InlineJob]:
        """The jobs to run within this many seconds, each when the clock reaches its time."""
        if seconds < 0:
            raise QbullError(f"advance({seconds}): time goes forward only")
        until = self.now_ms + int(seconds * 1000)
        yield from self._waiting() if self._at_once else ()
        while True:
            due: list[tuple[int, Callable[[], None]]] = [
                (kept.due_ms, partial(self._promote, kept))
                for kept in self.kept.values()
                if kept.state == "delayed"
            ]
            due += [
                (planned, partial(self._tick, schedule, planned))
                for schedule in self.app.declared.values()
                if (planned := schedule.after(self.now_ms)) is not None
            ]
            at, wake = min(due, key=itemgetter(0), default=(until + 1, None))
            if wake is None or at > until:
                break
            self.now_ms = max(self.now_ms, at)
            wake()
            if self._at_once:
                yield from self._waiting()
        self.now_ms = until

    def _promote(self, kept: InlineJob) -> None:
        kept.promote(self.now_ms)

    def _tick(self, schedule: Schedule, planned: int) -> None:
        queue = self.app.queues[schedule.queue]
        id = schedule.tick_id(planned)
        if (queue.name, id) not in self.kept:
            protect = partial(queue._producer.protect, id)
            job = NewJob(id, *scheduled_run(queue.settings, schedule, protect, queue.tasks))
            self._note(queue.name, PlacedJob(0, job), id, True)
            self._keep(queue.name, job)

    def _run_sync_of_app(self, coroutine: Coroutine[Any, Any, A]) -> A:
        """Replaces `app.run_sync` in the block: jobs run after the call, in the thread of the caller."""
        if asyncio._get_running_loop() is not None:
            coroutine.close()
            raise QbullError(
                "a synchronous call would block the running event loop; await the asynchronous one instead"
            )
        later: list[InlineJob] = []
        token = _later.set(later)
        try:
            answer = _in_a_loop(coroutine)
        finally:
            _later.reset(token)
        for kept in later:
            self._run_sync(kept)
        return answer


class _NoWorker:
    """The worker of `app.worker()` in the block. It does nothing: jobs run without one."""

    def __init__(self, *_: object, **__: object) -> None:
        self.id = "inline"

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self, grace: float = 0.0) -> None:
        """Nothing to stop."""

    async def drain(self) -> None:
        """There is nothing left to run."""

    async def __aenter__(self) -> _NoWorker:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def _in_a_loop(coroutine: Coroutine[Any, Any, A]) -> A:
    """Run a coroutine in a new event loop, which is closed afterwards."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
