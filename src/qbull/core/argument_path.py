"""Paths into arguments: `items.0.sku` is the `sku` of the first of `items`."""

from __future__ import annotations

from typing import Any

from qbull.core.digits import MAX_DIGITS, whole_number
from qbull.errors import ArgumentsError

NO_VALUE = object()
"""There is no value at the path."""


def check_path(name: str, path: str) -> None:
    """Refuse a path with digits that are no position in a list, such as `items.².sku`."""
    for part in path.split("."):
        if part.isdigit() and whole_number(part) is None:
            raise ArgumentsError(
                f'{name}: "{part[:40]}" is no position in a list; '
                f"write at most {MAX_DIGITS} digits from 0 to 9"
            )


def value_at(value: Any, path: str) -> Any:
    """The value at a path, or NO_VALUE."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and (index := whole_number(part)) is not None and index < len(value):
            value = value[index]
        else:
            return NO_VALUE
    return value


def scalar_text(value: Any) -> str:
    """A value as people type it: `null`, `true`, `5`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
    return str(value)
