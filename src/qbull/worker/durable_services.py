"""The surroundings of a durable run, as its steps need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from qbull.codecs.context import ValueContext
from qbull.core.calls import CallOutcomes, HistoryChange
from qbull.core.durable import StepRecord
from qbull.core.flow import Dependency, FlowPlan
from qbull.core.outcome import Suspended
from qbull.core.values import ValueHooks
from qbull.store.verbs.signals import PendingSignals
from qbull.worker.task_calls import TaskCall

A = TypeVar("A")

NO_SPAN: AbstractContextManager[None] = nullcontext()
"""The span of a step in an app without tracing."""


class DurableServices(Protocol):
    """The surroundings of a durable run: a worker, or a test without one."""

    @property
    def hooks(self) -> ValueHooks:
        """How values without a JSON form travel in the records."""

    def span(self, step: str) -> AbstractContextManager[object]:
        """The span of a step that runs; one that does nothing if the app has no tracing."""

    def write(self, change: HistoryChange) -> Awaitable[bool]:
        """Change the history. Gives False if the job is another worker's."""

    async def signals(self) -> PendingSignals:
        """The signals that the task has not taken."""

    async def plan_call(self, call: TaskCall) -> FlowPlan:
        """The job that a call enqueues. Refuses one that the caller would wait for in vain."""

    async def call_outcomes(self, calls: Sequence[str]) -> CallOutcomes:
        """The outcomes of these calls, as far as there are any."""

    async def open_outcome(self, letter: str, told: Dependency) -> Dependency:
        """The outcome of a called job with its whole result, without the codecs of the app."""

    def open_signal(self, name: str, content: bytes) -> bytes:
        """Undo the codecs of the app for the value of a signal."""

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Other arguments for the job, checked as those of a call and encoded by the codecs of the app."""

    def protect_published(self, name: str, content: bytes) -> bytes:
        """Apply the codecs of the app to a value that the job publishes."""

    def protect(self, record: StepRecord) -> bytes:
        """The content of a record, with the codecs of the app applied."""

    def open(self, record: StepRecord) -> bytes:
        """The content of a record, without the codecs of the app."""

    async def now_ms(self) -> int:
        """The server's clock."""

    def suspend(self, suspended: Suspended) -> bool:
        """End the run because it sleeps or waits. False if the task has to raise."""

    def is_interrupted(self) -> bool:
        """Whether the run was stopped for another reason than that somebody has cancelled the job."""

    def run_plain(self, call: Callable[[], Any]) -> Awaitable[Any]:
        """Run a plain function in a thread."""

    def on_loop(self, call: Callable[[], None]) -> None:
        """Call something on the event loop, from the thread of a plain task."""

    def wait_for(self, steps: Coroutine[Any, Any, A]) -> A:
        """Run a coroutine of this module for a plain task, from the thread of the task."""


def signal_context(queue: str, id: str, task: str, name: str) -> ValueContext:
    """Binds a signal to its job and its name."""
    return ValueContext("signal", queue, task, id, name.encode("utf-8", "surrogatepass"))


def published_context(queue: str, id: str, task: str, name: str) -> ValueContext:
    """Binds a published value to its job and its name."""
    return ValueContext("published value", queue, task, id, name.encode())


def stream_context(queue: str, id: str, task: str, key: bytes) -> ValueContext:
    """Binds an emitted value to its job and its key."""
    return ValueContext("stream value", queue, task, id, key)


def step_context(queue: str, id: str, task: str, record: StepRecord) -> ValueContext:
    """Binds the content of a record to its job, number and step, and to the way in which the step ended.

    The codecs refuse it anywhere else: two steps that ran at the same time cannot swap their results, and an
    error cannot be passed off as a result.
    """
    name = record.name.encode("utf-8", "surrogatepass")
    about = (b"%d" % record.number, name, record.arguments, b"%d" % record.occurrence, record.end.encode())
    return ValueContext("step", queue, task, id, b"".join(len(one).to_bytes(4, "big") + one for one in about))
