"""Functions as RQ names them, and as qbull declares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from qbull.core.retry import Retry as Rule
from qbull.core.task import task_kind
from qbull.errors import MAX_DELAY_SECONDS, ArgumentsError, ConfigError, DeclarationError
from qbull.queue import Queue

Function = Callable[..., Any] | str

NO_RETRIES = Rule(attempts=1)
RQ_UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def name_of(function: Function) -> str:
    """Return the name that RQ gives a function: its module and its qualified name."""
    if isinstance(function, str):
        return function
    if inspect.ismethod(function) or not hasattr(function, "__qualname__") or "<" in function.__qualname__:
        raise DeclarationError(
            f"{function!r}: a task must be a function of a module; a worker cannot find methods and inner "
            "functions by name"
        )
    return f"{function.__module__}.{function.__qualname__}"


def check_serializer(what: str, serializer: Any) -> None:
    """Refuse serializers other than JSON."""
    name = serializer if isinstance(serializer, str) else getattr(serializer, "__name__", repr(serializer))
    if serializer is not None and "json" not in name.lower():
        raise ConfigError(
            f"{what}(serializer={name}): arguments and results travel as JSON; nothing is pickled. Remove it"
        )


def seconds_of(timeout: float | str) -> float:
    """Parse a timeout such as 180, "180", "3m" or "1h"; -1 means no limit."""
    if isinstance(timeout, str):
        number, unit = (
            (timeout[:-1], timeout[-1:].lower())
            if timeout[-1:].lower() in RQ_UNIT_SECONDS
            else (timeout, "s")
        )
        try:
            timeout = int(number) * RQ_UNIT_SECONDS[unit]
        except ValueError:
            raise ArgumentsError(
                f'job_timeout="{timeout}": give seconds, or for example "3m" or "1h"'
            ) from None
    return MAX_DELAY_SECONDS if timeout == -1 else timeout


def declare_function(queue: Queue, name: str, function: Callable[..., Any]) -> None:
    """Declare a task. A function with `*args` or `**kwargs` gets a signature that carries them."""
    declare = queue.task(name=name, retry=NO_RETRIES)
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    if kinds.isdisjoint((inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)):
        declare(function)
        return
    from qbull.compat.celery.arguments import CelerySignature  # Most programs need nothing of Celery's.

    signature = CelerySignature(name, function, queue.app._hooks)
    declare(signature.declared)
    queue.tasks[name] = replace(
        queue.tasks[name],
        function=function,
        signature=signature,
        kind=task_kind(name, function, cpu=False),
    )


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
