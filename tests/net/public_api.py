"""Describe public Python names as text: signatures of functions; constructors, fields and methods of classes.

The text does not depend on the modules that define them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import qbull

MODULES = [
    "qbull",
    "qbull.compat.celery",
    "qbull.compat.rq",
    "qbull.contrib.django",
    "qbull.contrib.flask",
    "qbull.contrib.sentry",
    "qbull.contrib.starlette",
    "qbull.postgres",
    "qbull.testing",
]
"""The modules that the guides tell users to import."""

SPECIAL = ("__aenter__", "__aiter__", "__await__", "__call__", "__enter__", "__iter__")
"""Special methods that users rely on: `with`, `await`, `for` and calls."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MODULE = re.compile(r"\b(?:qbull|typing|collections\.abc|datetime)\.(?:[a-z_]\w*\.)*(?=[A-Z_a-z])")
_EMPTY = inspect.Parameter.empty


def describe(module: ModuleType) -> str:
    """Every name of the module's `__all__`, with all that a user can call or read."""
    parts = ["\n".join(_thing(name, getattr(module, name))) for name in module.__all__]
    return "\n\n".join([f"# {module.__name__}", *parts])


def _thing(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing):
        yield from _class(name, thing)
    elif callable(thing):
        yield f"{_def(thing)} {name}{_signature(thing)}"
    else:
        yield f"{name}: {type(thing).__name__}"


def _class(name: str, kind: type) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__mro__[1:] if is_public(base)]
    yield f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    if not issubclass(kind, BaseException) or is_ours(owner_of(kind, "__init__")):
        yield f"    __init__{_signature(kind)}"
    for field, annotation in sorted(_fields(kind).items()):
        yield f"    {field}: {_annotation(annotation)}"
    for method in sorted({*dir(kind)}):
        if method.startswith("_") and method not in SPECIAL:
            continue
        owner = owner_of(kind, method)
        if is_ours(owner) and (owner is kind or not is_public(owner)):
            yield from _member(method, vars(owner)[method])


def _member(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, staticmethod | classmethod):
        word = type(thing).__name__
        yield f"    @{word} {_def(thing.__func__)} {name}{_signature(thing.__func__)}"
    elif inspect.isfunction(thing):
        yield f"    {_def(thing)} {name}{_signature(thing)}"
    elif (getter := getattr(thing, "fget", getattr(thing, "func", None))) is not None:
        yield f"    @property {name}{_signature(getter)}"


def _fields(kind: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        if is_ours(one):
            found |= {name: said for name, said in inspect.get_annotations(one).items() if name[0] != "_"}
    return found


def owner_of(kind: type, name: str) -> type:
    """The class that defines a name, which `kind` may have inherited."""
    return next((one for one in kind.__mro__ if name in vars(one)), object)


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "qbull"


def is_public(kind: type) -> bool:
    """Whether users know this base: an error that they catch, not a class that only shares code."""
    if kind.__module__ == "builtins":
        return kind not in (object, BaseException, Exception)
    return kind.__name__ in qbull.__all__


def _def(function: Callable[..., Any]) -> str:
    return "async def" if inspect.iscoroutinefunction(function) else "def"


def _signature(thing: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:  # a class of C without one
        return "(...)"
    shown = [_parameter(parameter) for parameter in _with_marks(signature)]
    text = f"({', '.join(shown)})"
    if not inspect.isclass(thing) and signature.return_annotation is not inspect.Signature.empty:
        text += f" -> {_annotation(signature.return_annotation)}"
    return text


def _with_marks(signature: inspect.Signature) -> Iterator[inspect.Parameter | str]:
    """The parameters, with / after positional-only ones and * before keyword-only ones."""
    kinds = inspect.Parameter
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    starred = False
    for n, parameter in enumerate(parameters):
        if parameter.kind is kinds.VAR_POSITIONAL:
            starred = True
        elif parameter.kind is kinds.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield parameter
        following = parameters[n + 1].kind if n + 1 < len(parameters) else None
        if parameter.kind is kinds.POSITIONAL_ONLY and following is not kinds.POSITIONAL_ONLY:
            yield "/"


def _parameter(parameter: inspect.Parameter | str) -> str:
    if isinstance(parameter, str):
        return parameter
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not _EMPTY:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not _EMPTY:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    shown = getattr(value, "__name__", None) or repr(value)
    return _MODULE.sub("", _ADDRESS.sub("", shown))


def _annotation(said: Any) -> str:
    return _MODULE.sub("", said if isinstance(said, str) else inspect.formatannotation(said))
