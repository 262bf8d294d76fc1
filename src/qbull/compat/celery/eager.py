"""Eager tasks: `task.apply(…)`, and `delay` with conf.task_always_eager, run here and now without a job."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from qbull.compat.celery.canvas import chain, chord, group, xmap, xstarmap
from qbull.compat.celery.exceptions import Retry
from qbull.compat.celery.group_result import GroupResult
from qbull.compat.celery.partial_calls import FailedRequest
from qbull.compat.celery.result import check_get_options
from qbull.compat.celery.run_events import Replaced, TaskRun
from qbull.compat.celery.signature import Signature, listed, signature
from qbull.compat.exact_arguments import ExactSignature
from qbull.core.stacktrace import format_stacktrace

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask


class EagerResult:
    """The result of a task that has run here.

    Args:
        id: The id of the call.
        value: The result, or the exception.
        state: "SUCCESS" or "FAILURE".
    """

    def __init__(self, id: str, value: Any, state: str) -> None:
        self.id = self.task_id = id
        self.result = self.info = value
        self.state = self.status = state
        self.parent: Any = None
        self.children: list[Any] = []

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    @property
    def traceback(self) -> str | None:
        return format_stacktrace(self.result) if self.failed() else None

    def ready(self) -> bool:
        return True

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **others: Any) -> Any:
        """Return the result, or raise the exception of the task.

        Args:
            timeout: Has no effect: the task has ended.
            propagate: Whether to raise the exception. If False, it is returned.
            others: Options of Celery that have no effect here; others are refused.
        """
        check_get_options(others)
        if self.failed() and propagate:
            raise self.result
        return self.result

    wait = get

    def forget(self) -> None:
        """Do nothing: there is no job."""

    def revoke(self, terminate: bool = False, **others: Any) -> None:
        """Do nothing: the task has ended.

        Args:
            terminate: Has no effect.
            others: Have no effect.
        """


def apply_task(
    task: CeleryTask, args: Sequence[Any], kwargs: Mapping[str, Any], *, id: str | None = None
) -> EagerResult:
    """Run a task here, with its retries, which do not wait."""
    id, retries = id or str(uuid4()), 0
    while True:
        try:
            with TaskRun(task, args, kwargs, eager_id=id, retries=retries) as run:
                run.value = _called(task, args, kwargs)
            return EagerResult(id, run.value, "SUCCESS")
        except Replaced as by:
            result = apply_canvas(by.signature)
            if isinstance(result, GroupResult):
                return EagerResult(id, result.get(), "SUCCESS")
            return EagerResult(id, result.result, result.state)
        except Retry:
            retries += 1
        except Exception as error:
            if task.app.conf.task_eager_propagates:
                raise
            return EagerResult(id, error, "FAILURE")


def _called(task: CeleryTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    value = task(*args, **kwargs)
    if inspect.iscoroutine(value):
        return task.app.run_sync(value)
    return value


def apply_canvas(given: Any, before: tuple[Any, ...] = ()) -> Any:
    """Run a canvas here. `before` has the result of the task before it."""
    if isinstance(given, chain):
        return _apply_chain(given, before)
    if isinstance(given, group):
        return GroupResult(str(uuid4()), [apply_canvas(each, before) for each in given.tasks])
    if isinstance(given, chord):
        header = GroupResult(str(uuid4()), [apply_canvas(each, before) for each in given.tasks])
        result: Any = next((each for each in header if each.failed()), None)
        result = apply_canvas(given.body, (header.get(),)) if result is None else result
        result.parent = header
        return result
    if isinstance(given, xmap | xstarmap):
        items = given.kwargs["it"]
        calls = [(item,) if isinstance(given, xmap) else tuple(item) for item in items]
        values = [apply_task(given.type, call, {}).get() for call in calls]
        return EagerResult(str(uuid4()), values, "SUCCESS")
    return _apply_one(given, before)


def _apply_one(given: Signature, before: tuple[Any, ...]) -> EagerResult:
    call = given.clone(before)
    result = apply_task(given.type, call.args, call.kwargs, id=given.options.get("task_id"))
    if result.successful():
        result.children = [apply_canvas(each, (result.result,)) for each in listed(given.options.get("link"))]
        return result
    for errback in listed(given.options.get("link_error")):
        _apply_errback(signature(errback, app=given.app), result, given.task)
    return result


def _apply_errback(errback: Signature, failed: EagerResult, task: str) -> None:
    """Run an errback with the id, or with the request, the exception and the traceback."""
    encoder, is_bound = errback.type.spec.signature, errback.type.traits.bind
    given: tuple[Any, ...] = (failed.id,)
    assert isinstance(encoder, ExactSignature)
    if encoder.errback_arguments(errback.args, errback.kwargs, is_bound=is_bound) == 3:
        given = (FailedRequest(failed.id, task, ""), failed.result, failed.traceback)
    _apply_one(errback, given)


def _apply_chain(given: chain, before: tuple[Any, ...]) -> Any:
    result: Any = None
    errbacks = listed(given.options.get("link_error"))
    for each in given.tasks:
        if errbacks:
            each = each.clone()
            for errback in errbacks:
                each.link_error(errback)
        after = apply_canvas(each, before)
        after.parent = result
        result = after
        if result.failed():
            break
        before = (result.get(),)
    return result
