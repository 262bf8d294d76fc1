"""Functions as RQ names them, and as qbull declares them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from qbull.compat.rq.exceptions import RqArgumentsError
from qbull.compat.rq.serializers import JSONSerializer
from qbull.compat.rq.signature import RqSignature
from qbull.core.retry import Retry as Rule
from qbull.core.task import TaskSpec, task_kind
from qbull.errors import MAX_DELAY_SECONDS, ConfigError, DeclarationError
from qbull.queue import Queue

Function = Callable[..., Any] | str

NO_RETRIES = Rule(attempts=1)
JOB_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
RQ_UNIT_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def name_of(function: Function) -> str:
    """Return the name that RQ gives a function: its module and its qualified name, without `<locals>`."""
    if isinstance(function, str):
        return function
    if inspect.ismethod(function) or "<lambda>" in getattr(function, "__qualname__", "<lambda>"):
        raise DeclarationError(
            f"{function!r}: a task must be a function with a name; a worker cannot find methods and lambda "
            "functions by name"
        )
    return f"{function.__module__}.{function.__qualname__}".replace(".<locals>", "")


def check_serializer(what: str, serializer: Any) -> Any:
    """Return a serializer for JSON as the caller has named it. Others are refused."""
    name = serializer if isinstance(serializer, str) else getattr(serializer, "__name__", repr(serializer))
    if serializer is not None and "json" not in name.lower():
        raise ConfigError(
            f"{what}(serializer={name}): arguments and results travel as JSON; nothing is pickled. Remove it"
        )
    return JSONSerializer if serializer is None or isinstance(serializer, str) else serializer


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
            raise RqArgumentsError(
                f'job_timeout="{timeout}": give seconds, or for example "3m" or "1h"'
            ) from None
    if timeout == 0:
        raise RqArgumentsError("job_timeout=0: give a longer time, or -1 for no limit")
    return MAX_DELAY_SECONDS if timeout == -1 else timeout


def check_job_id(id: Any) -> None:
    """Refuse an id that RQ refuses."""
    if id is None:
        return
    if not isinstance(id, str):
        raise TypeError(f"job_id={id!r}: give a text")
    if not JOB_ID_PATTERN.fullmatch(id):
        raise RqArgumentsError(f"job_id={id!r}: use letters, digits, underscores and hyphens")


def declare_function(queue: Queue, name: str, function: Callable[..., Any]) -> None:
    """Declare a task whose arguments arrive as what they were, also those of `*args` and `**kwargs`."""
    signature = RqSignature(name, function, queue.app._hooks)
    queue.task(name=name, retry=NO_RETRIES)(signature.declared)
    queue.tasks[name] = replace(
        queue.tasks[name],
        function=function,
        signature=signature,
        kind=task_kind(name, function, cpu=False),
    )


def function_behind(task: TaskSpec) -> Callable[..., Any]:
    """The function that was registered, without what a worker puts around it."""
    function: Callable[..., Any] = getattr(task.function, "__wrapped__", task.function)
    return function


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
