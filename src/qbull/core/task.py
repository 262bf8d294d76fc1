"""A task: the user's function under a stable name, with the settings of its runs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from qbull.core.codec import ArgumentTemplate, Signature
from qbull.core.demand import NO_DEMAND, TaskDemand
from qbull.core.limits import TaskLimit
from qbull.core.options import DEFAULT_OPTIONS, Options
from qbull.core.retry import Retry
from qbull.errors import DeclarationError

TaskKind = Literal["async", "thread", "process"]


class TaskSpec(msgspec.Struct, frozen=True):
    """A task as it was declared.

    Args:
        name: the name of the task.
        function: the user's function, or the caller of a chunk.
        signature: checks, encodes and decodes the arguments.
        kind: how the function runs.
        retry: the retry policy.
        timeout: seconds that one run may take.
        id: makes the id of a job from its arguments.
        key: makes the key of a job from its arguments.
        defaults: options for the calls that do not give them.
        durable: whether its jobs record steps.
        limits: the shared limits that its jobs use.
        demand: the labels and resources that it asks of a worker.
    """

    name: str
    function: Callable[..., Any]
    signature: Signature
    kind: TaskKind
    retry: Retry
    timeout: float | None
    id: ArgumentTemplate | None = None
    key: ArgumentTemplate | None = None
    defaults: Options = DEFAULT_OPTIONS
    durable: bool = False
    limits: tuple[TaskLimit, ...] = ()
    demand: TaskDemand = NO_DEMAND


def is_redeclared(before: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether a cell of a notebook declares the same function again, which then replaces the one before."""
    before, function = (getattr(each, "function", each) for each in (before, function))
    return (
        function.__module__ == before.__module__ == "__main__"
        and getattr(function, "__qualname__", "") == getattr(before, "__qualname__", None)
        and in_notebook()
    )


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook, or IPython, where people declare things again."""
    return hasattr(sys.modules.get("__main__"), "get_ipython")


def task_kind(name: str, function: Callable[..., Any], *, cpu: bool) -> TaskKind:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(f'task "{name}": a generator cannot be a task; return a value instead')
    if inspect.iscoroutinefunction(function):
        if cpu:
            raise DeclarationError(
                f'task "{name}": cpu=True runs plain functions in processes; remove async, or cpu=True'
            )
        return "async"
    qualified = getattr(function, "__qualname__", "")
    if cpu and "<locals>" in qualified:
        raise DeclarationError(
            f'task "{name}": a process of cpu=True cannot import {qualified}; '
            "move it to the top of its module"
        )
    if cpu and getattr(function, "__module__", None) == "__main__":
        raise DeclarationError(
            f'task "{name}": a process of cpu=True imports the task from its module, and cannot import '
            '"__main__", the script that runs; move the task into a module of its own and import it here'
        )
    return "process" if cpu else "thread"
