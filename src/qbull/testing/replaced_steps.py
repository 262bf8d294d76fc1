"""Replaced steps: a test gives steps of durable tasks other functions, results or errors.

The step keeps its name, its arguments and the type of its result, so its record is that of the real one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, ParamSpec, TypeVar, overload

from qbull.errors import ArgumentsError
from qbull.worker.step_calls import StepCall, StepOptions
from qbull.worker.step_function import function_of, stand_ins

P = ParamSpec("P")
R = TypeVar("R")

_UNNAMED = StepOptions(name="replaced")


class ReplacedStep:
    """The calls of a step that `replace_step` has replaced.

    Attributes:
        calls: the arguments of each call by name, in order. Recorded steps are not called again.

    Args:
        step: the function of the step, or its name.
        fake: the function that is called instead.
    """

    def __init__(self, step: Callable[..., Any] | str, fake: Callable[..., Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self._step = step
        self._fake = fake

    def stand_in(self, call: StepCall) -> Callable[..., Any] | None:
        """The function to call instead of that of a step; None for another step."""
        function = function_of(call)
        name = call.options.name or function.name
        if (name if isinstance(self._step, str) else call.function) != self._step:
            return None
        self.calls.append(dict(inspect.signature(call.function).bind(*call.args, **call.kwargs).arguments))
        return self._awaited if function.is_async else self._called

    async def _awaited(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._fake(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        return self._fake(*args, **kwargs)


class StepReplacement(Generic[P, R]):
    """A step to replace: say by which function, result or error.

    Args:
        step: the function of the step, or its name.
    """

    def __init__(self, step: Callable[..., Any] | str) -> None:
        self._step = step

    def runs(
        self, fake: Callable[P, Coroutine[Any, Any, R]] | Callable[P, R]
    ) -> AbstractContextManager[ReplacedStep]:
        """The step calls another function, with the same arguments.

        Args:
            fake: the function. For a step that is a coroutine function, it may be a plain one.
        """
        step = self._step
        is_plain = not isinstance(step, str) and not function_of(StepCall(step, (), {}, _UNNAMED)).is_async
        if is_plain and inspect.iscoroutinefunction(fake):
            raise ArgumentsError(
                f"replace_step({step!r:.80}): it is a plain function, so its replacement must be one"
            )
        return _replaced(ReplacedStep(step, fake))

    def returns(self, value: R) -> AbstractContextManager[ReplacedStep]:
        """The step has this result.

        Args:
            value: the result.
        """
        return _replaced(ReplacedStep(self._step, lambda *_, **__: value))

    def raises(self, error: Exception) -> AbstractContextManager[ReplacedStep]:
        """The step fails with this error.

        Args:
            error: the error.
        """

        def fail(*_: Any, **__: Any) -> Any:
            raise error

        return _replaced(ReplacedStep(self._step, fail))


@overload
def replace_step(step: Callable[P, Coroutine[Any, Any, R]]) -> StepReplacement[P, R]: ...
@overload
def replace_step(step: Callable[P, R]) -> StepReplacement[P, R]: ...
@overload
def replace_step(step: str) -> StepReplacement[..., Any]: ...
def replace_step(step: Callable[..., Any] | str) -> StepReplacement[..., Any]:
    """`with testing.replace_step(charge).returns("payment-7") as charged:` steps of `charge` do not call it.

    Works in `inline` and in `embedded`, for `step` and `step_sync`. Of several for the same step, the newest
    one counts.

    Args:
        step: the function of the step, or the name of the step.
    """
    if not callable(step) and not isinstance(step, str):
        raise ArgumentsError(f"replace_step({step!r:.80}): give the function of the step, or its name")
    return StepReplacement(step)


@contextmanager
def _replaced(step: ReplacedStep) -> Iterator[ReplacedStep]:
    stand_ins.append(step.stand_in)
    try:
        yield step
    finally:
        stand_ins.remove(step.stand_in)
