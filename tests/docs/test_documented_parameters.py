"""Every parameter of a public name is explained in its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import qbull

OBVIOUS = {"self", "cls", "args", "kwargs"}
"""Arguments that belong to the function of the user."""

LEFT = {
    "Alerts", "Compressed", "CurrentJob", "Encrypted", "Enqueueing", "FileResults", "Keep", "LogLine", "Middleware",
    "NotConfirmed", "Rate", "Repartitioning", "ResultStore", "Settled", "Signed", "Unique",
}  # fmt: skip
"""Classes with parameters that their docstrings do not explain yet. Take a name out when it is done."""


def parameters() -> Iterator[tuple[str, str, str]]:
    """Name of the thing, name of the parameter, and the docstring that should explain it."""
    for name in qbull.__all__:
        thing = getattr(qbull, name)
        if not inspect.isclass(thing):
            yield from _of(name, thing, inspect.getdoc(thing) or "")
            continue
        if not issubclass(thing, BaseException):
            yield from _of(name, thing, inspect.getdoc(thing) or "")
        for method, function in vars(thing).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                yield from _of(f"{name}.{method}", function, inspect.getdoc(function) or "")


def _of(name: str, thing: Any, text: str) -> Iterator[tuple[str, str, str]]:
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name not in OBVIOUS and not parameter.name.startswith("_"):
            yield name, parameter.name, text


def test_every_public_parameter_is_explained() -> None:
    silent = [
        f"{name}({parameter})"
        for name, parameter, text in parameters()
        if not re.search(rf"\b{parameter}\b", text) and name.partition(".")[0] not in LEFT
    ]

    assert silent == []
