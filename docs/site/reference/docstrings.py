"""Docstrings as the reference shows them: the text, and the parameters of its `Args:`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ARGS = re.compile(r"^Args:\n((?:(?: +.*)?\n?)*)", re.MULTILINE)
PARAMETER = re.compile(r"^    \**(\w+): (.*(?:\n        .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Docstring:
    text: str
    parameters: dict[str, str] = field(default_factory=dict)


def split(thing: Any) -> Docstring:
    text = inspect.cleandoc(inspect.getdoc(thing) or "")
    if not (args := ARGS.search(text)):
        return Docstring(text)
    parameters = {name: sentence(meaning) for name, meaning in PARAMETER.findall(args[1])}
    return Docstring((text[: args.start()] + text[args.end() :]).strip(), parameters)


def sentence(text: str) -> str:
    words = " ".join(text.split())
    return words[:1].upper() + words[1:]


def field_docs(kind: type) -> dict[str, str]:
    """The fields of a class that are followed by a docstring."""
    try:
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(before.target): sentence(str(after.value.value))
        for before, after in pairwise(definition.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and not ast.unparse(before.target).startswith("_")
    }
