"""The surroundings of a durable run, as its steps need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from qbull.codecs.context import ValueContext
from qbull.core.outcome import Suspended
from qbull.core.values import ValueHooks
from qbull.store.verbs.signals import PendingSignals

A = TypeVar("A")


class DurableServices(Protocol):
    """The surroundings of a durable run: a worker, or a test without one."""

    @property
    def hooks(self) -> ValueHooks:
        """How values without a JSON form travel in the records."""

    async def write(
        self, records: Sequence[tuple[int, bytes]], first: int, last: int, taken: int = 0
    ) -> bool:
        """Write records, and delete those from `first` to `last`, and the signal with the number `taken`.

        Returns False if the job is another worker's.
        """

    async def signals(self) -> PendingSignals:
        """The signals that the task has not taken."""

    def open_signal(self, name: str, content: bytes) -> bytes:
        """Undo the codecs of the app for the value of a signal."""

    def protect(self, number: int, content: bytes) -> bytes:
        """Apply the codecs of the app to the record with this number."""

    def open(self, number: int, content: bytes) -> bytes:
        """Undo the codecs of the app."""

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


def stream_context(queue: str, id: str, task: str, key: bytes) -> ValueContext:
    """Binds an emitted value to its job and its key."""
    return ValueContext("stream value", queue, task, id, key)


def step_context(queue: str, id: str, task: str, number: int) -> ValueContext:
    """Binds a record to its job and number: the codecs refuse it anywhere else."""
    return ValueContext("step", queue, task, id, b"%d" % number)
