"""Steps of durable tasks that run inline: their history is in memory, in the form that a server stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from msgspec.structs import replace

from qbull.app import App
from qbull.codecs.context import ValueContext, result_context
from qbull.core.calls import CALL_FIELD, CallOutcomes, HistoryChange, read_outcomes
from qbull.core.durable import STEP_FIELD, StepRecord, read_history
from qbull.core.flow import COMPLETED_LETTER, WAITING_LETTER, Dependency, FlowPlan, decode_flow_plan
from qbull.core.outcome import Suspended
from qbull.core.published import PUBLISHED_FIELD
from qbull.core.record import body_of
from qbull.core.signals import read_signals
from qbull.core.streams import EMITTED_FIELD
from qbull.core.values import ValueHooks
from qbull.store.verbs.partition import NewJob
from qbull.store.verbs.signals import PendingSignals
from qbull.testing.inline_client import needs_a_server
from qbull.testing.memory_job import InlineJob
from qbull.worker.continuing import OtherArguments
from qbull.worker.current import RunningJob
from qbull.worker.durable import DurableRun
from qbull.worker.durable_services import NO_SPAN, published_context, signal_context, step_context
from qbull.worker.step_calls import StepRunner
from qbull.worker.task_calls import TaskCall, caller_of

A = TypeVar("A")


class InlineSteps:
    """The `DurableServices` of one run.

    Args:
        app: the app.
        kept: the job.
        now_ms: the time of the test.
        in_a_loop: runs a coroutine if this thread has no event loop.
        add: adds a job that it calls.
    """

    def __init__(
        self,
        app: App,
        kept: InlineJob,
        now_ms: int,
        in_a_loop: Callable[[Coroutine[Any, Any, Any]], Any],
        add: Callable[[str, NewJob], object],
    ) -> None:
        self._app = app
        self._add = add
        self._now_ms = now_ms
        self._kept = kept
        self._in_a_loop = in_a_loop
        self._loop = asyncio._get_running_loop()

    def run(self, job: RunningJob) -> DurableRun:
        """The durable run of the job."""
        self._job = job
        fields = {b"%s%d" % (STEP_FIELD, number): stored for number, stored in self._kept.steps.items()}
        emitted = {EMITTED_FIELD + name.encode(): b"%d" % times for name, times in self._kept.emitted.items()}
        calls = {CALL_FIELD + name.encode(): stored for name, stored in self._kept.calls.items()}
        shown = {PUBLISHED_FIELD + name.encode(): value for name, value in self._kept.published.items()}
        return DurableRun(job, read_history(fields | emitted | calls | shown), self)

    @property
    def hooks(self) -> ValueHooks:
        kept = self._kept
        return self._app.queues[kept.queue].tasks[body_of(kept.record).task].signature.hooks

    def span(self, step: str) -> AbstractContextManager[object]:
        return NO_SPAN

    async def write(self, change: HistoryChange) -> bool:
        kept = self._kept
        kept.signals.pop(change.taken, None)
        kept.calls.pop(change.joined, None)
        for number in range(change.first, change.last + 1):
            kept.steps.pop(number, None)
        kept.steps.update(change.records)
        if change.published is not None:
            kept.published[change.published.name] = change.published.content
        if change.call is not None:
            seed = decode_flow_plan(change.call.plan).seeds[0]
            kept.calls[change.call.name] = WAITING_LETTER.encode()
            kept.called.append((seed.queue, seed.id))
            self._add(seed.queue, NewJob(seed.id, seed.when, seed.record))
        return True

    async def plan_call(self, call: TaskCall) -> FlowPlan:
        plan = await call.plan(caller_of(self._job, self._app.queues[self._kept.queue].settings))
        if len(plan.seeds) > 1:
            raise needs_a_server("a flow")
        return plan

    async def call_outcomes(self, calls: Sequence[str]) -> CallOutcomes:
        fields = {CALL_FIELD + name.encode(): stored for name, stored in self._kept.calls.items()}
        return read_outcomes(fields)

    async def open_outcome(self, letter: str, told: Dependency) -> Dependency:
        if letter != COMPLETED_LETTER:
            return told
        context = result_context(told.queue, told.id, told.task)
        return replace(told, result=self._app._codecs.open(context, told.result or b"null"))

    async def signals(self) -> PendingSignals:
        kept = self._kept
        return PendingSignals(self._now_ms, len(kept.signaled), read_signals(kept.signals))

    def open_signal(self, name: str, content: bytes) -> bytes:
        kept = self._kept
        context = signal_context(kept.queue, kept.id, body_of(kept.record).task, name)
        return self._app._codecs.open(context, content)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        task = self._app.queues[self._kept.queue].tasks[self._job.body.task]
        call = OtherArguments(task, args, kwargs, self._app.payload_limit)
        return call.encode(self._job, self._app._codecs)

    def protect_published(self, name: str, content: bytes) -> bytes:
        kept = self._kept
        context = published_context(kept.queue, kept.id, body_of(kept.record).task, name)
        return self._app._codecs.protect(context, content)

    def protect(self, record: StepRecord) -> bytes:
        return self._app._codecs.protect(self._context(record), record.content)

    def open(self, record: StepRecord) -> bytes:
        return self._app._codecs.open(self._context(record), record.content)

    def _context(self, record: StepRecord) -> ValueContext:
        kept = self._kept
        return step_context(kept.queue, kept.id, body_of(kept.record).task, record)

    async def now_ms(self) -> int:
        return self._now_ms

    def suspend(self, suspended: Suspended) -> bool:
        return False

    def is_interrupted(self) -> bool:
        return False

    def run_plain(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.to_thread(call)

    def on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    def wait_for(self, steps: Coroutine[Any, Any, A]) -> A:
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(steps, self._loop).result()
        answer: A = self._in_a_loop(steps)
        return answer


async def end_durable_run(run: StepRunner, error: Exception | None) -> Exception | None:
    """The error with which a run ends; None if it has completed."""
    try:
        if error is None:
            run.ended()
            return None
    except Exception as raised:
        error = raised
    finally:
        run.close()
    return await run.failed(error)
