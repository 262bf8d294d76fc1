"""Enqueued: the calls that were enqueued during a test, and assertions about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qbull.app import App
from qbull.codecs.context import payload_context
from qbull.core.codec import decode_untyped, encode_payload
from qbull.core.record import body_of, priority_of, to_datetime
from qbull.produce.router import PlacedJob
from qbull.task import Task

MAX_SHOWN_CALLS = 10


@dataclass(frozen=True)
class Enqueued:
    """One call of a task.

    Args:
        queue: the name of the queue.
        task: the name of the task.
        arguments: the arguments by name, as JSON has them.
        id: the id of the job.
        key: the key of the job; None for a job without one.
        priority: from 1 (first) to 10 (last).
        delay: the delay in seconds, if the call has one.
        at: the time from which the job may run, if the call has one.
        headers: the headers that middleware has added.
        created: whether the call made a new job; False if its id existed already.
    """

    queue: str
    task: str
    arguments: dict[str, Any]
    id: str
    key: str | None = None
    priority: int = 5
    delay: float | None = None
    at: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    created: bool = True

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.queue}: {self.task}({said})"


class EnqueueRecorder:
    """The common part of `inline` and `embedded`.

    Args:
        app: the app whose calls are recorded.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._calls: list[Enqueued] = []

    def enqueued(self, task: Task[..., Any] | str | None = None, /, **arguments: Any) -> list[Enqueued]:
        """The calls, in their order.

        Args:
            task: only calls of this task; or its name.
            arguments: only calls with these arguments, among others.
        """
        wanted = self._plain(arguments)
        return [call for call in self._calls if _is_of(call, task) and _has(call, wanted)]

    def assert_enqueued(self, task: Task[..., Any] | str, /, **arguments: Any) -> Enqueued:
        """Assert that a task was enqueued. Returns the newest such call.

        Args:
            task: the task, or its name.
            arguments: arguments that the call must have, among others.
        """
        __tracebackhide__ = True
        found = self.enqueued(task, **arguments)
        if not found:
            raise AssertionError(f"not enqueued: {_named(task, arguments)}; {self._shown()}")
        return found[-1]

    def assert_not_enqueued(self, task: Task[..., Any] | str | None = None, /, **arguments: Any) -> None:
        """Assert that a task was not enqueued; without a task, that nothing was.

        Args:
            task: the task, or its name.
            arguments: arguments that the call must not have.
        """
        __tracebackhide__ = True
        found = self.enqueued(task, **arguments)
        if found:
            raise AssertionError("enqueued: " + "; ".join(str(call) for call in found[:MAX_SHOWN_CALLS]))

    def _note(self, queue: str, placed: PlacedJob, id: str, created: bool) -> None:
        """Record a call."""
        own_id, when, record = placed.job
        body = body_of(record)
        payload = self.app._codecs.open(payload_context(queue, own_id, body), body.payload)
        due = str(when).partition(" ")[0]
        self._calls.append(
            Enqueued(
                queue=queue,
                task=body.task,
                arguments=decode_untyped(payload),
                id=id,
                key=body.key,
                priority=priority_of(record),
                delay=None if due.startswith("@") or due == "0" else int(due) / 1000,
                at=to_datetime(int(due[1:])) if due.startswith("@") else None,
                headers=body.headers or {},
                created=created,
            )
        )

    def _plain(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as JSON has them: a model is a dictionary, a time a text."""
        made: dict[str, Any] = decode_untyped(encode_payload("", arguments, limit=1 << 30))
        return made

    def _shown(self) -> str:
        if not self._calls:
            return "nothing was"
        rest = (
            f"; and {len(self._calls) - MAX_SHOWN_CALLS} more" if len(self._calls) > MAX_SHOWN_CALLS else ""
        )
        return "what was: " + "; ".join(str(call) for call in self._calls[-MAX_SHOWN_CALLS:]) + rest


def _has(call: Enqueued, wanted: dict[str, Any]) -> bool:
    return all(name in call.arguments and call.arguments[name] == value for name, value in wanted.items())


def _is_of(call: Enqueued, task: Task[..., Any] | str | None) -> bool:
    if task is None:
        return True
    if isinstance(task, str):
        return task in (call.task, f"{call.queue}/{call.task}")
    return (call.queue, call.task) == (task.queue.name, task.name)


def _named(task: Task[..., Any] | str, arguments: dict[str, Any]) -> str:
    name = task if isinstance(task, str) else f"{task.queue.name}: {task.name}"
    return f"{name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
