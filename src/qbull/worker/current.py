"""The current job: what a running task can ask about itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from qbull.core.calls import failure_of
from qbull.core.codec import decode_untyped
from qbull.core.flow import WAITING_LETTER, Dependency
from qbull.core.ids import planned_ms_in
from qbull.core.limits import check_weight
from qbull.core.log_level import LogLevel, marked
from qbull.core.progress import Progress, make_progress
from qbull.core.record import ExtendedBody, created_ms_of, to_datetime
from qbull.core.streams import encode_emitted
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import NotFound, ResultTimeout, TakenOver
from qbull.store.verbs.partition import Partition
from qbull.worker.continuing import ContinueCalls
from qbull.worker.published_calls import PublishedCalls
from qbull.worker.run_is_over import RUN_IS_OVER
from qbull.worker.step_calls import DurableCalls, StepRunner, refuse_loop, runner_of
from qbull.worker.task_calls import TaskCalls
from qbull.worker.transactions import TransactionCalls

if TYPE_CHECKING:
    from qbull.worker.resource_jobs import TokenLease


class ProgressSink(Protocol):
    """Receives the progress, the log lines and the emitted values of a job, from any thread."""

    def progress(self, job: RunningJob, value: Progress) -> None: ...
    async def log(self, job: RunningJob, text: str) -> None: ...
    def log_soon(self, job: RunningJob, text: str) -> Future[None]: ...
    def hooks_of(self, job: RunningJob) -> ValueHooks: ...
    def encode(self, job: RunningJob, value: Any) -> bytes: ...
    async def emit(self, job: RunningJob, content: bytes) -> bool: ...
    def emit_soon(self, job: RunningJob, content: bytes) -> Future[bool]: ...


class SimpleSink:
    """The part of a progress sink that takes log lines and emitted values, if that needs no waiting."""

    def take_line(self, job: RunningJob, text: str) -> None:
        """Take a log line."""
        raise NotImplementedError

    def take_value(self, job: RunningJob, content: bytes) -> None:
        """Take a value as JSON."""
        raise NotImplementedError

    async def log(self, job: RunningJob, text: str) -> None:
        self.take_line(job, text)

    def log_soon(self, job: RunningJob, text: str) -> Future[None]:
        self.take_line(job, text)
        written: Future[None] = Future()
        written.set_result(None)
        return written

    def hooks_of(self, job: RunningJob) -> ValueHooks:
        """How values of its task travel that have no JSON form."""
        return DEFAULT_HOOKS

    def encode(self, job: RunningJob, value: Any) -> bytes:
        return encode_emitted(job.body.task, value, self.hooks_of(job))

    async def emit(self, job: RunningJob, content: bytes) -> bool:
        return self.emit_soon(job, content).result()

    def emit_soon(self, job: RunningJob, content: bytes) -> Future[bool]:
        self.take_value(job, content)
        taken: Future[bool] = Future()
        taken.set_result(True)
        return taken


class RunningJob(msgspec.Struct, eq=False):
    """The run of one job, as the worker knows it. It becomes a CurrentJob only if the task asks for that.

    It is a struct because one is made for every run, and a struct is built without Python code.
    """

    queue: str
    position: bytes
    """The position of its delivery."""
    id: bytes
    record: bytes
    body: ExtendedBody
    partition: Partition | None = None
    """None in a process of the CPU pool, which has no connection."""
    lane: bytes = b""
    """The lane of the train that it is in."""
    progress_sink: ProgressSink | None = None
    app: str = ""
    """The name of the app, if there is no partition that knows it."""
    cancelled: str | None = None
    """The reason why it was cancelled."""
    stopped: bool = False
    """Nobody waits for its outcome any more."""
    in_thread: bool = False
    """A plain function is running for it right now, which nothing can interrupt."""
    has_output: bool = False
    """It has reported progress or log lines."""
    start_by: float = inf
    """The latest moment at which it may start, on this machine's monotonic clock."""
    thread_started: Callable[[], object] | None = None
    """Called by the thread that is about to run it."""
    process_started: Callable[[int], None] | None = None
    """Receives the id of the process that is about to run it."""
    process_stack: Callable[[], Awaitable[str]] | None = None
    """Returns the stack of the process that runs it."""
    without_timeout: Callable[[], AbstractContextManager[None]] | None = None
    """Within this block its timeout does not run, and starts over afterwards."""
    dependencies: Sequence[tuple[str, Dependency]] = ()
    """The outcomes of the jobs that it waited for in its flow."""
    trace_id: str = ""
    """The trace of this run, if the app has tracing on."""
    emitted: int = 0
    """How many values it has emitted in this run."""
    durable: StepRunner | None = None
    """Runs its steps, if its task is durable."""
    spend: Callable[[str | None, int], None] | None = None
    """Corrects the weight of its start, from any thread, if its task uses shared limits."""
    arguments: bytes | None = None
    """Its arguments, if they are stored elsewhere."""
    lease: TokenLease | None = None
    """The tokens of the host that it holds."""
    resources: Mapping[str, list[int]] | None = None
    """The numbers of these tokens."""
    marks: frozenset[str] = frozenset()
    """The steps whose effects this run has marked in PostgreSQL."""

    def close_run(self) -> None:
        """Its durable run is over, if it has one."""
        if self.durable is not None:
            self.durable.close()
            self.durable = RUN_IS_OVER


running: ContextVar[RunningJob | None] = ContextVar("qbull_running", default=None)


@dataclass(frozen=True, slots=True)
class CurrentJob(DurableCalls, TaskCalls, PublishedCalls, ContinueCalls, TransactionCalls):
    """The running job, as its task sees it. Only the job of a durable task has steps and checkpoints.

    Args:
        id: the id of the job.
        queue: the name of its queue.
        task: the name of its task.
        key: its key; None for a job without one.
        attempt: the number of this attempt, from 1.
        fence: a number that rises with every delivery, so that other stores can refuse a write with an older
            one.
        enqueued_at: the time at which the job was enqueued.
        schedule: the name of the schedule that enqueued the job; None for other jobs.
        planned_at: the time that the schedule planned for it; None for other jobs.
        headers: the headers that middleware has added.
    """

    id: str
    queue: str
    task: str
    key: str | None
    attempt: int
    fence: int
    enqueued_at: datetime
    schedule: str | None
    planned_at: datetime | None
    headers: Mapping[str, str]
    _running: RunningJob = field(repr=False, compare=False)

    @property
    def _steps(self) -> StepRunner:
        return runner_of(self.task, self._running.durable)

    @property
    def cancelled(self) -> bool:
        """Whether the job should stop: it was cancelled or timed out, or its worker stops.

        Nothing can interrupt a plain function, so it has to ask.
        """
        return self._running.stopped

    @property
    def results(self) -> list[Any]:
        """The results of the jobs that it waited for in its flow, in the order in which the flow lists them.

        A job that did not complete has a JobFailed or a JobCancelled in its place.
        """
        return [_result(letter, told) for letter, told in self._running.dependencies]

    @property
    def resources(self) -> dict[str, list[int]]:
        """The tokens that it holds, as numbers from 0: `{"gpu": [1]}`. Empty if its task asks for none."""
        return {name: list(numbers) for name, numbers in (self._running.resources or {}).items()}

    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report how far the job is: `progress(33)`, or `progress(5, 20, "reading rows")`.

        Does not wait. Of many values in a short time only the last is written.

        Args:
            done: how much is done, from 0 to `total`; without a total, the progress in percent.
            total: how much there is to do.
            note: a short text for people.
        """
        self.progress_sync(done, total, note)

    async def log(self, text: str, *, level: LogLevel = "info") -> None:
        """Add a log line to the job. Returns when the server has it.

        Args:
            text: the line.
            level: debug, info, warning or error.
        """
        job, line = self._running, marked(str(text), level)
        if job.progress_sink is not None and not job.stopped:
            job.has_output = True
            await job.progress_sink.log(job, line)

    def progress_sync(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """`progress` for plain functions.

        Args:
            done: how much is done, from 0 to `total`; without a total, the progress in percent.
            total: how much there is to do.
            note: a short text for people.
        """
        value = make_progress(done, total, note)
        job = self._running
        if job.progress_sink is not None and not job.stopped:
            job.has_output = True
            job.progress_sink.progress(job, value)

    def log_sync(self, text: str, *, level: LogLevel = "info") -> None:
        """`log` for plain functions.

        Args:
            text: the line.
            level: debug, info, warning or error.
        """
        refuse_loop("log")
        written = self._log_soon(text, level)
        if written is not None:
            written.result()

    async def emit(self, value: Any) -> None:
        """Add a value to the stream of the job: `handle.stream()` yields it. Returns when the server has it.

        Raises TakenOver if another worker has the job by now.

        Args:
            value: the value, which must have a JSON form.
        """
        job = self._running
        if job.progress_sink is not None and not job.stopped:
            content = job.progress_sink.encode(job, value)
            if not await job.progress_sink.emit(job, content):
                raise self._taken_over()

    def emit_sync(self, value: Any) -> None:
        """`emit` for plain functions.

        Args:
            value: the value, which must have a JSON form.
        """
        refuse_loop("emit")
        job = self._running
        if job.progress_sink is not None and not job.stopped:
            content = job.progress_sink.encode(job, value)
            if not job.progress_sink.emit_soon(job, content).result():
                raise self._taken_over()

    def spent(self, weight: float, *, limit: str | None = None) -> None:
        """Correct what this run takes of a shared limit: `spent(answer.usage.total_tokens)`.

        Does not wait, and works in coroutines and plain functions. The last call counts. If the job has used
        more than it was granted, later jobs wait for it.

        Args:
            weight: the weight of this run in all.
            limit: the name of the limit; it can be left out if the task uses one.
        """
        job = self._running
        checked = check_weight(weight, f"job {self.id}: spent(…): the weight")
        if job.spend is not None:
            job.spend(limit, checked)

    def _log_soon(self, text: str, level: LogLevel = "info") -> Future[None] | None:
        """Add a log line. The future is done when the server has it; None if nothing waits for the line."""
        job, line = self._running, marked(str(text), level)
        if job.progress_sink is None or job.stopped:
            return None
        job.has_output = True
        return job.progress_sink.log_soon(job, line)

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f'queue "{self.queue}": job {self.id} was given to another worker; its stream takes no values of '
            "this run"
        )


def _result(letter: str, told: Dependency) -> Any:
    if letter == WAITING_LETTER:
        return ResultTimeout(f'queue "{told.queue}": job {told.id} has not finished')
    return failure_of(letter, told) or decode_untyped(told.result or b"null")


def entry_ms(position: bytes) -> int:
    """The time of the entry, on the server's clock."""
    return int(position[1 : position.index(b"-")])


def fence_of(position: bytes) -> int:
    """The entry `<milliseconds>-<sequence>` as one number that fits 64 bits and rises with it."""
    milliseconds, _, sequence = position[1:].partition(b"-")
    return int(milliseconds) << 20 | min(int(sequence), 0xFFFFF)


def current_job() -> CurrentJob:
    """The job whose task is running now."""
    now = running.get()
    if now is None:
        raise NotFound("no job is running here; current_job() is for code inside a task")
    return CurrentJob(
        id=now.id.decode(),
        queue=now.queue,
        task=now.body.task,
        key=now.body.key,
        attempt=now.body.attempt,
        fence=fence_of(now.position),
        enqueued_at=to_datetime(created_ms_of(now.record) or entry_ms(now.position)),
        schedule=now.body.schedule,
        planned_at=planned_ms_in(now.id.decode()) if now.body.schedule is not None else None,
        headers=now.body.headers or {},
        _running=now,
    )
