"""The outcome of a job, from the value or exception of its task. `decide` is the whole retry policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from qbull.core.retry import Retry
from qbull.errors import Fail, RetryAfter


@dataclass(frozen=True, slots=True)
class Done:
    """It is finished, and this is its encoded result."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Delay:
    """It runs again after so many seconds."""

    seconds: float
    error: str


@dataclass(frozen=True, slots=True)
class Dead:
    """It goes to the dead letters."""

    error: str
    stacktrace: str | None = None


Outcome: TypeAlias = Done | Delay | Dead


class ReportedError(Exception):
    """An error that its text describes fully: from another process, or not raised by the task itself."""


class AlreadyDone(BaseException):
    """An earlier run of the job has had its effect: this one ends here, as done.

    Not an Exception: a task that catches those must not take it for a failure.
    """


class Undeliverable(Exception):
    """No attempt can succeed: an unknown task, arguments or a result that cannot be carried."""


def decide(
    error: BaseException, attempt: int, attempts: int, retry: Retry, stacktrace: str | None = None
) -> Delay | Dead:
    """`attempts` is what this job may have in all; `retry` says how long it waits."""
    reason = describe(error)
    match error:
        case RetryAfter(delay=delay):
            return Delay(delay, reason)
        case Fail() | Undeliverable():
            return Dead(reason, stacktrace)
        case _ if attempt >= attempts:
            return Dead(reason, stacktrace)
        case _:
            return Delay(retry.wait_before(attempt + 1), reason)


def describe(error: BaseException) -> str:
    """One line that says what went wrong, bounded in length."""
    try:
        text = str(error)
    except Exception:
        text = "its message cannot be shown"
    if not isinstance(error, Fail | RetryAfter | Undeliverable | ReportedError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = text.encode("utf-8", "replace").decode() or "no message"
    return text if len(text) <= 2000 else text[:2000] + " …"
