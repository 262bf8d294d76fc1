"""Histories: reads the history of a durable job before it runs, and writes the records of its steps.

Records leave in batches, one call at a time for each partition, so that those of a job arrive in order. While
a call is in flight, the next batch gathers, with the records of all jobs of the partition. A write is
repeated while the server is unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar

from qbull.codecs.context import ValueContext
from qbull.core.calls import CallOutcomes, HistoryChange
from qbull.core.durable import History, StepRecord, read_history
from qbull.core.flow import Dependency, FlowPlan
from qbull.core.outcome import Suspended, Undeliverable
from qbull.core.record import created_ms_of
from qbull.core.values import ValueHooks
from qbull.core.wrapped_payload import is_wrapped
from qbull.errors import ArgumentsError, TakenOver
from qbull.store.batch import Batcher
from qbull.store.delivery import DeliveredJob
from qbull.store.read.inspect import server_time
from qbull.store.verbs.history import (
    MAX_HISTORY_WRITES,
    HistoryWrite,
    read_call_outcomes,
    read_job_data,
    write_history,
)
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.signals import PendingSignals, read_pending_signals
from qbull.worker.assignment import Assignment
from qbull.worker.continuing import OtherArguments
from qbull.worker.current import RunningJob
from qbull.worker.dependencies import DependencyLoader
from qbull.worker.durable import DurableRun
from qbull.worker.durable_services import NO_SPAN, published_context, signal_context, step_context
from qbull.worker.slot import Slot
from qbull.worker.step_calls import StepRunner
from qbull.worker.task_calls import TaskCall, caller_of, refuse_own_lane
from qbull.worker.wiring import WorkerWiring

A = TypeVar("A")


class HistoryKeeper:
    """For one queue.

    Args:
        wiring: the services of the worker.
        assignment: the queue, the codecs and the durability of the app.
        run_plain: runs a plain function in a thread of the queue.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        assignment: Assignment,
        run_plain: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        durability = assignment.durability
        self._confirmed = wiring.store.confirmed(durability) if durability is not None else None
        self._worker = wiring.worker
        self._outage = wiring.outage
        self.retry = wiring.outage.retry_until_up
        self.settings = assignment.settings
        self.dependencies = DependencyLoader(assignment.results, assignment.codecs, wiring.outage)
        self.codecs = assignment.codecs
        self.tracing = assignment.tracing
        self.tasks = assignment.tasks
        self.payload_limit = assignment.payload_limit
        self.run_plain = run_plain
        self._batchers: dict[int, Batcher[HistoryWrite, bool]] = {}
        self._blocked: set[Future[Any]] = set()

    async def open(self, delivered: DeliveredJob, job: RunningJob, slot: Slot) -> DurableRun:
        """Prepare a run: read the history of the job, unless this is its first delivery."""
        history, delivery = History(), delivered.delivery
        # A job that is still in the entry of its enqueue has never run, unless a failover lost its outcome.
        if created_ms_of(delivered.record) or delivery.lane or delivery.is_repeated:
            partition, id = delivery.partition, delivered.id.decode()
            read = partial(read_job_data, partition, id)
            try:
                history = read_history(await self._outage.retry_until_up(read))
            except ValueError as error:
                raise Undeliverable(str(error)) from None
        return DurableRun(job, history, _JobServices(self, delivered, job, slot))

    @staticmethod
    async def failed(run: StepRunner, slot: Slot, error: Exception) -> Exception:
        """The task has raised. Returns the error with which the run ends."""
        try:
            return await run.failed(error)
        except asyncio.CancelledError:
            if slot.take_interrupt() is None:
                raise
            # The next run gets the recorded error again, and decides then.
            return error

    async def now_ms(self, partition: Partition) -> int:
        """The server's clock."""
        return int(await self._outage.retry_until_up(partial(server_time, partition)) * 1000)

    async def signals(self, partition: Partition, id: bytes) -> PendingSignals:
        """The signals that wait for a job."""
        return await self._outage.retry_until_up(partial(read_pending_signals, partition, id))

    def batcher(self, partition: Partition) -> Batcher[HistoryWrite, bool]:
        """Writes the records of a partition. Answers False if their job belongs to another worker by now."""
        batcher = self._batchers.get(partition.number)
        if batcher is None:

            async def send(writes: list[HistoryWrite]) -> list[bool]:
                call = partial(write_history, partition, self._confirmed, self._worker, writes)
                return await self._outage.retry_until_up(call)

            batcher = Batcher(send, MAX_HISTORY_WRITES, in_order=True)
            self._batchers[partition.number] = batcher
        return batcher

    def wait_for(self, steps: Coroutine[Any, Any, A], loop: asyncio.AbstractEventLoop) -> A:
        """Run a coroutine on the loop of the worker, from the thread of a plain task."""
        if loop.is_closed():
            steps.close()
            raise TakenOver("the worker has stopped; the steps of this run are no longer recorded")
        answer = asyncio.run_coroutine_threadsafe(steps, loop)
        self._blocked.add(answer)
        try:
            return answer.result()
        except CancelledError:
            raise TakenOver("the run was stopped; its steps are no longer recorded") from None
        finally:
            self._blocked.discard(answer)

    async def close(self) -> None:
        """Let the threads go that wait for a step, and end the writes that no run waits for any more."""
        for answer in list(self._blocked):
            answer.cancel()
        for batcher in self._batchers.values():
            await batcher.close()


class _JobServices:
    """The `DurableServices` of one run in a worker."""

    __slots__ = ("_batcher", "_delivered", "_job", "_keeper", "_loop", "_position", "_slot")

    def __init__(self, keeper: HistoryKeeper, delivered: DeliveredJob, job: RunningJob, slot: Slot) -> None:
        self._keeper = keeper
        self._delivered = delivered
        self._position = delivered.position
        self._batcher = keeper.batcher(delivered.delivery.partition)
        self._job = job
        self._slot = slot
        self._loop = asyncio.get_running_loop()

    @property
    def hooks(self) -> ValueHooks:
        return self._keeper.tasks[self._job.body.task].signature.hooks

    def span(self, step: str) -> AbstractContextManager[object]:
        tracing, job = self._keeper.tracing, self._job
        if tracing is None:
            return NO_SPAN
        return tracing.step(step, job.queue, job.body.task, job.id.decode("utf-8", "replace"))

    def write(self, change: HistoryChange) -> Awaitable[bool]:
        return self._batcher.put(HistoryWrite(self._delivered.id, self._position, change))

    async def plan_call(self, call: TaskCall) -> FlowPlan:
        app, settings = self._delivered.delivery.partition.app, self._keeper.settings
        if call.step.queue.app.prefix != app:
            raise ArgumentsError(f'call({call.step}): it is a task of another app than "{app}"')
        caller = caller_of(self._job, settings)
        plan = await self._keeper.retry(partial(call.plan, caller))
        refuse_own_lane(call, self._job, call.called_in(plan))
        return plan

    async def call_outcomes(self, calls: Sequence[str]) -> CallOutcomes:
        delivered = self._delivered
        read = partial(read_call_outcomes, delivered.delivery.partition, delivered.id, calls)
        return await self._keeper.retry(read)

    async def open_outcome(self, letter: str, told: Dependency) -> Dependency:
        return await self._keeper.dependencies.whole(letter, told)

    async def signals(self) -> PendingSignals:
        delivered = self._delivered
        return await self._keeper.signals(delivered.delivery.partition, delivered.id)

    def open_signal(self, name: str, content: bytes) -> bytes:
        codecs, job = self._keeper.codecs, self._job
        if not codecs.used and not is_wrapped(content):
            return content
        id = job.id.decode("utf-8", "surrogateescape")
        return codecs.open(signal_context(job.queue, id, job.body.task, name), content)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        keeper, job = self._keeper, self._job
        call = OtherArguments(keeper.tasks[job.body.task], args, kwargs, keeper.payload_limit)
        return call.encode(job, keeper.codecs)

    def protect_published(self, name: str, content: bytes) -> bytes:
        codecs, job = self._keeper.codecs, self._job
        id = job.id.decode("utf-8", "surrogateescape")
        return codecs.protect(published_context(job.queue, id, job.body.task, name), content)

    def protect(self, record: StepRecord) -> bytes:
        codecs, content = self._keeper.codecs, record.content
        return codecs.protect(self._context(record), content) if codecs.used else content

    def open(self, record: StepRecord) -> bytes:
        codecs, content = self._keeper.codecs, record.content
        if not codecs.used and not is_wrapped(content):
            return content
        return codecs.open(self._context(record), content)

    def _context(self, record: StepRecord) -> ValueContext:
        job = self._job
        return step_context(job.queue, job.id.decode("utf-8", "surrogateescape"), job.body.task, record)

    async def now_ms(self) -> int:
        return await self._keeper.now_ms(self._delivered.delivery.partition)

    def suspend(self, suspended: Suspended) -> bool:
        if self._job.in_thread:
            return False
        self._slot.interrupt(suspended)
        return True

    def is_interrupted(self) -> bool:
        job = self._job
        return (job.stopped or self._slot.why is not None) and job.cancelled is None

    def run_plain(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._keeper.run_plain(call)

    def on_loop(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(call)

    def wait_for(self, steps: Coroutine[Any, Any, A]) -> A:
        return self._keeper.wait_for(steps, self._loop)
