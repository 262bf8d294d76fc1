"""The outcome of a job, from the value or exception of its task. `decide` is the whole retry policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from qbull.core.record import ExtendedBody, repack, without_crashes
from qbull.core.retry import Retry
from qbull.core.stacktrace import MAX_ERROR_CHARS, cut_message
from qbull.errors import Fail, RetryAfter


class Done(msgspec.Struct, frozen=True):
    """The job is finished, and this is its encoded result."""

    result: bytes


class Delay(msgspec.Struct, frozen=True):
    """The job runs again after this many seconds."""

    seconds: float
    error: str


class Dead(msgspec.Struct, frozen=True):
    """The job becomes a dead letter."""

    error: str


Outcome: TypeAlias = Done | Delay | Dead


class ReportedError(Exception):
    """An error whose text says everything: from another process, or not raised by the task itself."""


class AlreadyDone(BaseException):
    """An earlier run of the job had its effect, so this run ends here and counts as completed.

    Not an Exception, so that a task that catches exceptions does not take it for a failure.
    """


class Suspended(BaseException):
    """A durable job sleeps or waits: it leaves the worker until a time, a signal or the end of another job.

    Args:
        due_ms: the time in milliseconds, on the server's clock.
        hold_lane: jobs of the same key wait with it.
        waits_for: the signals that it waits for.
        seen: the number of the newest signal or outcome of a call that it knows, if it waits for any. If
            there is a newer one, it stays awake.
    """

    def __init__(
        self, due_ms: int, *, hold_lane: bool, waits_for: Sequence[str] = (), seen: int | None = None
    ) -> None:
        super().__init__(f"the job sleeps until {due_ms}")
        self.due_ms = due_ms
        self.hold_lane = hold_lane
        self.waits_for = list(waits_for)
        self.seen = seen

    def body(self, body: ExtendedBody) -> ExtendedBody:
        """The body of the suspended job. It has started, so it does not expire any more."""
        reason, woken_ms = "sleeping", self.due_ms
        if self.seen is not None:
            reason, woken_ms = "waiting" if self.waits_for else "calling", 0
        return replace(body, suspended=reason, woken_ms=woken_ms, waits_for=self.waits_for, expires=None)

    @property
    def until(self) -> str:
        """Its end, as lua/settle.lua takes it."""
        return str(self.due_ms) if self.seen is None else f"{self.due_ms} {self.seen}"


class ContinuedAs(BaseException):
    """A durable job starts over in its place: with the same id, these arguments and an empty history.

    Args:
        payload: the arguments, encoded by the codecs of the app.
    """

    def __init__(self, payload: bytes) -> None:
        super().__init__("the job starts over with other arguments")
        self.payload = payload

    def record(self, record: bytes, body: ExtendedBody) -> bytes:
        """The record of the new start: its attempts and crashes count from the start again."""
        anew = replace(
            body,
            payload=self.payload,
            attempt=1,
            history=[],
            expires=None,
            suspended="",
            woken_ms=0,
            waits_for=[],
            continued=body.continued + 1,
        )
        return repack(without_crashes(record), anew)


class Undeliverable(Exception):
    """No attempt can succeed: the task is unknown, or its arguments or result cannot be encoded."""


def decide(error: BaseException, attempt: int, attempts: int, retry: Retry) -> Delay | Dead:
    """Decide what happens after a run. `attempts` is the maximum for this job; `retry` has the waits."""
    reason = describe(error)
    match error:
        case RetryAfter(delay=delay):
            return Delay(delay, reason)
        case Fail() | Undeliverable():
            return Dead(reason)
        case _ if attempt >= attempts:
            return Dead(reason)
        case _:
            return Delay(retry.wait_before(attempt + 1), reason)


def describe(error: BaseException) -> str:
    """The error in one line, bounded in length."""
    try:
        # The message may have any length: cut it before it is copied.
        text = str(error)[: MAX_ERROR_CHARS + 1]
    except Exception:
        text = "its message cannot be shown"
    if not isinstance(error, Fail | RetryAfter | Undeliverable | ReportedError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = text.encode("utf-8", "replace").decode() or "no message"
    return cut_message(text)
