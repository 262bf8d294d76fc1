"""One run of a Celery task in a worker: its function with `self`, its missing arguments and its retries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbull.compat.celery.arguments import CelerySignature, PartialCall
from qbull.compat.celery.group_result import GroupResult
from qbull.compat.celery.partial_calls import complete_calls
from qbull.compat.celery.result import AsyncResult
from qbull.compat.celery.run_events import TaskRun
from qbull.compat.celery.soft_limit import await_within, call_within
from qbull.compat.celery.task_options import CeleryTaskOptions
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

    def sent(value: Any) -> Any:
        if traits.ignore_result:
            return None
        if isinstance(value, AsyncResult | GroupResult):
            value = value.as_tuple()
        signature = task().spec.signature
        return signature.result_to_send(value) if isinstance(signature, CelerySignature) else value

    if inspect.iscoroutinefunction(function):

        async def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with TaskRun(task(), args, kwargs) as this:
                if this.soft_time_limit is None:
                    this.value = await task()(*args, **kwargs)
                else:
                    this.value = await await_within(this.soft_time_limit, task(), *args, **kwargs)
            return sent(this.value)

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            if not args or not isinstance(args[0], PartialCall):
                return await call(args, kwargs)
            values = [await call(*each) for each in complete_calls(task(), args[0])]
            return args[0].result_of(values)
    else:

        def call_plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with TaskRun(task(), args, kwargs) as this:
                if this.soft_time_limit is None:
                    this.value = task()(*args, **kwargs)
                else:
                    this.value = call_within(this.soft_time_limit, task(), *args, **kwargs)
            return sent(this.value)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not args or not isinstance(args[0], PartialCall):
                return call_plain(args, kwargs)
            values = [call_plain(*each) for each in complete_calls(task(), args[0])]
            return args[0].result_of(values)

    if traits.bind:
        run.__signature__ = signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
        run.__annotations__ = {n: a for n, a in run.__annotations__.items() if n != parameters[0].name}
    return run
