"""Refusals: a drop-in API raises for everything it does not support, and names the replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from qbull.errors import QbullError


def refuse(
    what: str, given: Mapping[str, Any], instead: Mapping[str, str], error: type[QbullError], guide: str
) -> None:
    """Raise for the first unsupported keyword, if there is one.

    Args:
        what: The call that got the keywords.
        given: The unsupported keywords with their values.
        instead: The hint for each known keyword.
        error: The class of the error.
        guide: The page in docs/guides that lists the supported keywords.
    """
    for name in given:
        raise error(f"{what}({name}=…): {instead.get(name, _unknown(guide))}")


def refuse_attribute(of: object, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Raise AttributeError from __getattr__, with a hint if there is one for this name."""
    kind = type(of).__name__
    if name in instead:
        raise AttributeError(f"{kind}.{name}: {instead[name]}", name=name, obj=of)
    raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=of)


def refuse_name(module: str, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Raise from a module's __getattr__.

    It is an ImportError, because `from … import …` swallows the text of an AttributeError.
    """
    if name in instead:
        raise ImportError(f"{module}.{name}: {instead[name]}", name=module)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _unknown(guide: str) -> str:
    return f"is not supported; see docs/guides/{guide}.md for what is"
