"""Exceptions of Celery: the names to catch, and the exception of a task for those who wait for its result."""

from __future__ import annotations

import builtins
import re
import sys
from ast import literal_eval
from typing import Any

from qbull.compat.celery.instead import CELERY_MODULE_HINTS
from qbull.compat.refusal import refuse_name
from qbull.errors import JobCancelled, JobFailed, ResultTimeout, RetryAfter

TimeoutError = ResultTimeout  # noqa: A001 - the name in Celery
"""Raised by `result.get(timeout=…)`."""
TaskRevokedError = JobCancelled
"""Raised by `result.get()` of a revoked task."""


class Retry(RetryAfter):
    """Raised by `self.retry(…)`: the job runs again later.

    Args:
        delay: Seconds until the job runs again.
        reason: The text for the history of the job.
        queue: Whether the whole queue waits.
    """


class MaxRetriesExceededError(Exception):
    """Raised by `self.retry(…)` without `exc` if no retries are left."""


class ImproperlyConfigured(Exception):
    """Raised by `self.replace(…)` with an empty chain."""


class SoftTimeLimitExceeded(Exception):
    """Raised in a task that runs longer than its soft_time_limit. The task may catch it."""


def exception_of(failure: JobFailed) -> JobFailed:
    """Return the failure as an exception of the class that the task has raised, if this program knows it.

    It is a JobFailed as well. Nothing is imported for it: a class of a module that is not loaded here stays
    unknown.
    """
    name, _, text = failure.error.partition(": ")
    kind = _class_named(name, failure.stacktrace or "")
    if kind is None or issubclass(kind, JobFailed):
        return failure
    try:
        combined: Any = type(name, (kind, JobFailed), {"__module__": kind.__module__, "__str__": _text_of})
        made: JobFailed = combined.__new__(combined, text)
    except TypeError:
        return failure
    made.args = _args_in(kind, text)
    made.error, made.stacktrace = failure.error, failure.stacktrace
    made.__cause__ = failure
    return made


def _text_of(error: JobFailed) -> str:
    """The text of the exception in the worker, whatever the class makes of its arguments."""
    return error.error.partition(": ")[2]


def _args_in(kind: type[Exception], text: str) -> tuple[Any, ...]:
    """The arguments of the exception, as far as its text has them: a key, or several plain values."""
    if not text:
        return ()
    try:
        if issubclass(kind, KeyError):
            return (literal_eval(text),)
        if text.startswith("(") and kind.__str__ is Exception.__str__:
            found = literal_eval(text)
            return found if isinstance(found, tuple) and len(found) > 1 else (text,)
    except (ValueError, SyntaxError):
        pass
    return (text,)


def _class_named(name: str, stacktrace: str) -> type[Exception] | None:
    """Find the class of an exception. The last line of a traceback has its module."""
    if not name.isidentifier():
        return None
    found = re.findall(rf"^(?:([\w.]+)\.)?{name}(?::|$)", stacktrace, re.MULTILINE)
    owner: Any = sys.modules.get(found[-1]) if found and found[-1] else builtins
    kind = getattr(owner, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def __getattr__(name: str) -> Any:
    refuse_name(__name__, name, CELERY_MODULE_HINTS)
