"""Step functions: what a durable run has to know of a function that it calls as a step."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import msgspec

from qbull.core.codec import decode_result, encode_result
from qbull.core.values import ValueHooks
from qbull.errors import ArgumentsError, Fail, RetryAfter
from qbull.worker.step_calls import StepCall

_PLAIN_RESULTS = (type(None), bool, int, str, float)
"""Types whose values come back from JSON as they are."""


stand_ins: list[Callable[[StepCall], Callable[..., Any] | None]] = []
"""Functions that replace those of steps in tests (testing/replaced_steps.py). The newest one counts."""


class StepFunction(msgspec.Struct, frozen=True):
    """The name of a function, whether it is a coroutine function, and the type of its result."""

    name: str
    is_async: bool
    result_type: Any

    def round_trip(self, value: Any, limit: int, hooks: ValueHooks) -> tuple[bytes, Any]:
        """The result as it is recorded, and as the task gets it: the same as in every replay."""
        encoded = encode_result(value, limit, hooks)
        if type(value) in _PLAIN_RESULTS and self.result_type in (Any, type(value)):
            return encoded, value
        return encoded, decode_result(encoded, self.result_type, hooks)

    def decode(self, encoded: bytes, hooks: ValueHooks) -> Any:
        return decode_result(encoded, self.result_type, hooks)


def function_of(call: StepCall) -> StepFunction:
    """The function of a step. Refuses one that cannot be a step."""
    function = call.function
    if not callable(function):
        raise ArgumentsError(
            f"step({function!r}): give the function and its arguments, step(charge, order), not its result"
        )
    try:
        known = _describe(getattr(function, "__func__", function))
    except TypeError:  # it has no hash
        known = _describe.__wrapped__(function)
    if call.options.name is None and not known.name.isidentifier():
        raise ArgumentsError(f"step({function!r}): it has no name of its own; give one: options(name=…)")
    return known


@lru_cache(maxsize=1024)
def _describe(function: Callable[..., Any]) -> StepFunction:
    while isinstance(function, partial):
        function = function.func
    plain = inspect.unwrap(function)
    try:
        result_type = typing.get_type_hints(plain, include_extras=True).get("return", Any)
    except Exception:  # whatever evaluating an annotation raises
        result_type = Any
    method = getattr(type(function), "__call__", None)  # noqa: B004 - of an object that is called
    is_async = any(map(inspect.iscoroutinefunction, (function, plain, method)))
    return StepFunction(str(getattr(function, "__name__", "")), is_async, result_type)


def tries_again(error: Exception, call: StepCall, tries: int) -> bool:
    """Whether a step whose function has raised is tried once more."""
    return not isinstance(error, Fail | RetryAfter) and tries < call.options.retry.attempts


def refuse_timeout(call: StepCall, function: StepFunction) -> None:
    """Refuse the timeout of a step whose function is a plain one."""
    if call.options.timeout is not None:
        raise ArgumentsError(
            f'step "{call.options.name or function.name}": timeout is for coroutine functions, because '
            "nothing can interrupt a plain one; give the function a timeout of its own"
        )


def function_to_call(call: StepCall) -> Callable[..., Any]:
    """The function of a step, or the one that replaces it in a test."""
    others = (stand_in(call) for stand_in in reversed(stand_ins))
    return next((other for other in others if other is not None), call.function)


def try_step(
    call: StepCall, function: StepFunction, run_plain: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> Awaitable[Any]:
    """Call the function of a step once; a plain one in a thread."""
    called = function_to_call(call) if stand_ins else call.function
    if not function.is_async:
        return run_plain(lambda: called(*call.args, **call.kwargs))
    if call.options.timeout is None:
        result: Awaitable[Any] = called(*call.args, **call.kwargs)
        return result
    return _try_in_time(call, function, called, call.options.timeout)


async def _try_in_time(
    call: StepCall, function: StepFunction, called: Callable[..., Any], timeout: float
) -> Any:
    try:
        async with asyncio.timeout(timeout) as limit:
            return await called(*call.args, **call.kwargs)
    except TimeoutError as error:
        if not limit.expired():
            raise
        name = call.options.name or function.name
        raise TimeoutError(f'step "{name}" ran longer than its timeout of {timeout:g} s') from error


def current_task() -> object:
    """The asyncio task that runs now; None in a thread without an event loop."""
    return asyncio.current_task() if asyncio._get_running_loop() is not None else None


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves_of(one)
    else:
        yield error
