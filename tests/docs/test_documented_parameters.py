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
    "Compressed", "CurrentJob", "Encrypted", "Enqueueing", "FileResults", "LogLine", "NotConfirmed", "Rate",
    "Repartitioning", "ResultStore", "Settled", "Signed", "Unique",
}  # fmt: skip
"""Classes with parameters that their docstrings do not explain yet. Take a name out when it is done."""


Parameter = tuple[str, str, list[str], str]
"""Name of the thing, of the parameter, of the keywords that it stands for, and the docstring that explains it."""


def parameters() -> Iterator[Parameter]:
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


def _of(name: str, thing: Any, text: str) -> Iterator[Parameter]:
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name not in OBVIOUS and not parameter.name.startswith("_"):
            yield name, parameter.name, _keywords(thing, parameter), text


def _keywords(thing: Any, parameter: inspect.Parameter) -> list[str]:
    """The keys of the TypedDict in `**settings: Unpack[TaskSettings]`."""
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    return list(thing.__globals__[unpacked[1]].__annotations__) if unpacked else []


def mentions(text: str, names: list[str]) -> bool:
    return all(re.search(rf"\b{name}\b", text) for name in names)


def test_every_public_parameter_is_explained() -> None:
    silent = [
        f"{name}({parameter})"
        for name, parameter, keywords, text in parameters()
        if not (mentions(text, [parameter]) or (keywords and mentions(text, keywords)))
        and name.partition(".")[0] not in LEFT
    ]

    assert silent == []
