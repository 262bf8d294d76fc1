"""The keys of a TypedDict that a call takes as keyword arguments."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any


def unpacked_keys(thing: Callable[..., Any], parameter: inspect.Parameter) -> dict[str, Any]:
    """The keys of the TypedDict in `**settings: Unpack[TaskSettings]`, with their types."""
    name = re.search(r"Unpack\[(\w+)\]", str(parameter.annotation))
    return dict(_named(inspect.unwrap(thing), name[1]).__annotations__) if name else {}


def _named(function: Any, name: str) -> Any:
    """The class with this name in the module of a function, also if only type checkers import it."""
    if name in function.__globals__:
        return function.__globals__[name]
    module = importlib.import_module(function.__module__)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return getattr(importlib.import_module(node.module or ""), name)
    raise LookupError(f"{module.__name__} has no {name}")
