"""A task: the user's function under a stable name, with how it is to be run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from qbull.core.codec import Signature, Template
from qbull.core.retry import Retry
from qbull.core.unique import Unique
from qbull.errors import DeclarationError

Kind = Literal["async", "thread", "process"]


@dataclass(frozen=True)
class TaskSpec:
    name: str
    function: Callable[..., Any]
    signature: Signature
    kind: Kind
    retry: Retry
    timeout: float | None
    id: Template | None = None
    key: Template | None = None
    unique: Unique | None = None
    expires: float | None = None


def kind_of(name: str, function: Callable[..., Any], *, cpu: bool) -> Kind:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(f'task "{name}": a generator cannot be a task; return a value instead')
    if inspect.iscoroutinefunction(function):
        if cpu:
            raise DeclarationError(
                f'task "{name}": cpu=True runs plain functions in processes; remove async, or cpu=True'
            )
        return "async"
    return "process" if cpu else "thread"
