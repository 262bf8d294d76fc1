"""Refusal: what a shim does not do is said by its name, with what to use instead. Nothing is ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from qbull.errors import QbullError


def refuse(
    what: str, given: Mapping[str, Any], instead: Mapping[str, str], error: type[QbullError], guide: str
) -> None:
    """Raise for the first of the keywords that are left over, if there are any."""
    for name in given:
        raise error(f"{what}({name}=…): {instead.get(name, _unknown(guide))}")


def refuse_attribute(of: object, name: str, instead: Mapping[str, str]) -> NoReturn:
    """For __getattr__: says what to use instead, where that is known."""
    kind = type(of).__name__
    if name in instead:
        raise AttributeError(f"{kind}.{name}: {instead[name]}", name=name, obj=of)
    raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=of)


def refuse_name(module: str, name: str, instead: Mapping[str, str]) -> NoReturn:
    """For a module's __getattr__. An ImportError, because `from … import …` swallows the text of an AttributeError."""
    if name in instead:
        raise ImportError(f"{module}.{name}: {instead[name]}", name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _unknown(guide: str) -> str:
    return f"is not taken over; docs/guides/{guide}.md says what is"
