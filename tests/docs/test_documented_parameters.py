"""Every parameter of a public name is explained in its docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, is_typeddict

import pytest
from public_api import MODULES, SPECIAL, is_ours, is_public, owner_of
from reference.typed_dicts import unpacked_keys

from syntax_tree import parse_source

OBVIOUS = {"self", "cls", "args", "kwargs", "message"}
"""Arguments that belong to the function of the user, and the text of an error."""


class Parameter(NamedTuple):
    of: str
    """The function or class, for example `Queue.task`."""
    name: str
    keywords: list[str]
    """The keywords that it stands for."""
    text: str
    """The docstring that explains it."""

    @property
    def is_explained(self) -> bool:
        return mentions(self.text, [self.name]) or bool(self.keywords and mentions(self.text, self.keywords))


def mentions(text: str, names: list[str]) -> bool:
    return all(re.search(rf"\b{name}\b", text) for name in names)


def parameters(module: str) -> Iterator[Parameter]:
    public = importlib.import_module(module)
    for name in public.__all__:
        thing = getattr(public, name)
        if is_typeddict(thing):  # keywords of a function, which explains them
            continue
        if inspect.isclass(thing):
            yield from _of_class(name, thing)
        elif callable(thing):
            yield from _of(name, thing)


def _of_class(name: str, kind: type) -> Iterator[Parameter]:
    if not issubclass(kind, BaseException) or is_ours(owner_of(kind, "__init__")):
        yield from _of(name, kind)
    for method in dir(kind):
        owner = owner_of(kind, method)
        if method.startswith("_") and method not in SPECIAL:
            continue
        if is_ours(owner) and (owner is kind or not is_public(owner)):
            member = vars(owner)[method]
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if inspect.isfunction(function):
                yield from _of(f"{name}.{method}", function)


def _of(name: str, thing: Any) -> Iterator[Parameter]:
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        text = " ".join([text, *_documented_fields(thing)])
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name not in OBVIOUS and not parameter.name.startswith("_"):
            yield Parameter(name, parameter.name, unpacked_keys(thing, parameter), text)


def _documented_fields(kind: type) -> Iterator[str]:
    """The fields of a class that are followed by a docstring of their own."""
    [definition] = parse_source(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for field, following in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(following, ast.Expr):
            yield ast.unparse(field.target)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_parameter_is_explained(module: str) -> None:
    silent = [f"{each.of}({each.name})" for each in parameters(module) if not each.is_explained]

    assert silent == []
