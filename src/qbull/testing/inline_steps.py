"""Steps of durable tasks that run inline: their history is in memory, in the form that a server stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from qbull.app import App
from qbull.codecs.context import ValueContext
from qbull.core.durable import STEP_FIELD, read_history
from qbull.core.outcome import Suspended
from qbull.core.record import body_of
from qbull.core.signals import read_signals
from qbull.core.streams import EMITTED_FIELD
from qbull.core.values import ValueHooks
from qbull.store.verbs.signals import PendingSignals
from qbull.testing.memory_job import InlineJob
from qbull.worker.current import RunningJob
from qbull.worker.durable import DurableRun
from qbull.worker.durable_services import signal_context, step_context
from qbull.worker.step_calls import StepRunner

A = TypeVar("A")


class InlineSteps:
    """The `DurableServices` of one run.

    Args:
        app: the app.
        kept: the job.
        now_ms: the time of the test.
        in_a_loop: runs a coroutine if this thread has no event loop.
    """

    def __init__(
        self, app: App, kept: InlineJob, now_ms: int, in_a_loop: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._app = app
        self._now_ms = now_ms
        self._kept = kept
        self._in_a_loop = in_a_loop
        self._loop = asyncio._get_running_loop()

    def run(self, job: RunningJob) -> DurableRun:
        """The durable run of the job."""
        fields = {b"%s%d" % (STEP_FIELD, number): stored for number, stored in self._kept.steps.items()}
        emitted = {EMITTED_FIELD + name.encode(): b"%d" % times for name, times in self._kept.emitted.items()}
        return DurableRun(job, read_history(fields | emitted), self)

    @property
    def hooks(self) -> ValueHooks:
        kept = self._kept
        return self._app.queues[kept.queue].tasks[body_of(kept.record).task].signature.hooks

    async def write(
        self, records: Sequence[tuple[int, bytes]], first: int, last: int, taken: int = 0
    ) -> bool:
        self._kept.signals.pop(taken, None)
        for number in range(first, last + 1):
            self._kept.steps.pop(number, None)
        self._kept.steps.update(records)
        return True

    async def signals(self) -> PendingSignals:
        kept = self._kept
        return PendingSignals(self._now_ms, len(kept.signaled), read_signals(kept.signals))

    def open_signal(self, name: str, content: bytes) -> bytes:
        kept = self._kept
        context = signal_context(kept.queue, kept.id, body_of(kept.record).task, name)
        return self._app._codecs.open(context, content)

    def protect(self, number: int, content: bytes) -> bytes:
        return self._app._codecs.protect(self._context(number), content)

    def open(self, number: int, content: bytes) -> bytes:
        return self._app._codecs.open(self._context(number), content)

    def _context(self, number: int) -> ValueContext:
        kept = self._kept
        return step_context(kept.queue, kept.id, body_of(kept.record).task, number)

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
