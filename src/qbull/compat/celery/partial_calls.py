"""Partial calls in the worker: a call gets its missing arguments from the jobs before it in the canvas."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.exceptions import exception_of
from qbull.compat.exact_arguments import ExactSignature, PartialCall, result_of
from qbull.core.flow import COMPLETED_LETTER, Dependency
from qbull.errors import Fail, JobCancelled, JobFailed
from qbull.worker.current import running

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask

_STOPPED = re.compile(r'job \S+ \(.*\) of queue ".*" (failed|was |has not )')
"""The error of a job that could not run because a job before it has failed."""

CompleteCall = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True)
class FailedRequest:
    """The failed job, as the first argument of an errback.

    Args:
        id: Its id.
        task: The name of its task.
        queue: The name of its queue.
    """

    id: str
    task: str
    queue: str


def complete_calls(task: CeleryTask, call: PartialCall) -> list[CompleteCall]:
    """Return the calls to make: one, one for each item, or none for an errback that is not concerned."""
    signature = task.spec.signature
    assert isinstance(signature, ExactSignature)

    def complete(*args: Any, **kwargs: Any) -> CompleteCall:
        # Values of earlier tasks become what the annotations of this one say.
        return signature.decode(signature.encode(args, kwargs, sys.maxsize)[0])

    match call.source:
        case "items":
            return [complete(item) for item in call.args]
        case "argument lists":
            return [complete(*items) for items in call.args]
        case "caller":
            return [complete(*call.args, **call.kwargs)]
        case "error" | "own error":
            return _error_calls(task, call, signature)
        case "result":
            letter, told = _dependencies()[0]
            return [complete(_value_of(task, letter, told), *call.args, **call.kwargs)]
        case "results" | "gather":
            return [complete(gathered_results(task, call), *call.args, **call.kwargs)]


def gathered_results(task: CeleryTask, call: PartialCall) -> list[Any]:
    """The results of the jobs before, as the groups at the ends of chains nest them."""
    values = [_value_of(task, letter, told) for letter, told in _dependencies()]
    return values if call.shape is None else _nested(iter(values), call.shape)


def _error_calls(task: CeleryTask, call: PartialCall, signature: ExactSignature) -> list[CompleteCall]:
    [(letter, told)] = _dependencies()
    error = told.error or ""
    if call.source == "own error" and told.stacktrace is None and _STOPPED.match(error):
        return []
    given: list[Any] = []
    if not call.immutable:
        given = [told.id]
        if signature.errback_arguments(call.args, call.kwargs, is_bound=task.traits.bind) == 3:
            text = f"job {told.id} of task {told.task} failed: {error}"
            failure: Exception = JobCancelled(text)
            if letter not in "x-":
                failure = exception_of(JobFailed(text, error=error, stacktrace=told.stacktrace))
            given = [FailedRequest(told.id, told.task, told.queue), failure, told.stacktrace]
    return [([*given, *call.args], dict(call.kwargs))]


def _nested(values: Iterator[Any], shape: list[Any]) -> list[Any]:
    """The results as the groups at the ends of chains have them."""
    return [next(values) if each is None else _nested(values, each) for each in shape]


def _dependencies() -> Sequence[tuple[str, Dependency]]:
    job = running.get()
    assert job is not None
    return job.dependencies


def _value_of(task: CeleryTask, letter: str, told: Dependency) -> Any:
    if letter != COMPLETED_LETTER:
        raise Fail(f"job {told.id} ({told.task}) before it has no result: {told.error or 'it has not ended'}")
    before = task.app.tasks.get(told.task)
    return result_of(before.spec.signature if before is not None else None, told.result or b"null")
