"""One run of a Celery task in a worker: its function with `self`, its missing arguments and its retries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.group_result import GroupResult
from qbull.compat.celery.partial_calls import complete_calls, gathered_results
from qbull.compat.celery.replacing import is_replaced, replaced, replaced_sync
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.run_events import Replaced, TaskRun
from qbull.compat.celery.soft_limit import await_within, call_within
from qbull.compat.celery.task_options import CeleryTaskOptions
from qbull.compat.exact_arguments import ExactSignature, PartialCall
from qbull.errors import DeclarationError

if TYPE_CHECKING:
    from qbull.compat.celery.task import CeleryTask


def guarded(
    function: Callable[..., Any], traits: CeleryTaskOptions, task: Callable[[], CeleryTask]
) -> Callable[..., Any]:
    """Wrap a function for a worker: pass `self` if it is bound, and retry as `autoretry_for` declares."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if traits.bind and not parameters:
        raise DeclarationError(f'task "{traits.name}": bind=True, but it has no first parameter "self"')
    run = functools.wraps(function)(
        _coroutine(task) if inspect.iscoroutinefunction(function) else _plain(task)
    )
    if traits.bind:
        run.__signature__ = signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
        run.__annotations__ = {n: a for n, a in run.__annotations__.items() if n != parameters[0].name}
    return run


def _coroutine(task: Callable[[], CeleryTask]) -> Callable[..., Any]:
    """The run of a coroutine function."""

    async def call(args: Sequence[Any], kwargs: Mapping[str, Any], is_item: bool = False) -> Any:
        with TaskRun(task(), args, kwargs, is_item=is_item) as this:
            if this.soft_time_limit is None:
                this.value = await task()(*args, **kwargs)
            else:
                this.value = await await_within(this.soft_time_limit, task(), *args, **kwargs)
        return _sent(task(), this.value)

    async def run(*args: Any, **kwargs: Any) -> Any:
        if is_replaced(task()):
            return _sent(task(), await replaced(task()))
        try:
            if not args or not isinstance(args[0], PartialCall):
                return await call(args, kwargs)
            partial = args[0]
            if partial.source == "gather":
                return _sent(task(), gathered_results(task(), partial))
            values = [await call(*each, partial.is_for_each) for each in complete_calls(task(), partial)]
            return partial.result_of(values)
        except Replaced as by:
            return _sent(task(), await replaced(task(), by.call))

    return run


def _plain(task: Callable[[], CeleryTask]) -> Callable[..., Any]:
    """The run of a plain function."""

    def call(args: Sequence[Any], kwargs: Mapping[str, Any], is_item: bool = False) -> Any:
        with TaskRun(task(), args, kwargs, is_item=is_item) as this:
            if this.soft_time_limit is None:
                this.value = task()(*args, **kwargs)
            else:
                this.value = call_within(this.soft_time_limit, task(), *args, **kwargs)
        return _sent(task(), this.value)

    def run(*args: Any, **kwargs: Any) -> Any:
        if is_replaced(task()):
            return _sent(task(), replaced_sync(task()))
        try:
            if not args or not isinstance(args[0], PartialCall):
                return call(args, kwargs)
            partial = args[0]
            if partial.source == "gather":
                return _sent(task(), gathered_results(task(), partial))
            values = [call(*each, partial.is_for_each) for each in complete_calls(task(), partial)]
            return partial.result_of(values)
        except Replaced as by:
            return _sent(task(), replaced_sync(task(), by.call))

    return run


def _sent(task: CeleryTask, value: Any) -> Any:
    """A result in the form in which it is encoded."""
    if task.traits.ignore_result:
        return None
    if isinstance(value, AsyncResult | GroupResult):
        value = value.as_tuple()
    signature = task.spec.signature
    return signature.result_to_send(value) if isinstance(signature, ExactSignature) else value
