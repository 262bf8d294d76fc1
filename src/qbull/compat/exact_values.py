"""Exact values: Python values that JSON would change, in a form that keeps their type.

A date travels as `{"__type__": "date", "__value__": "2026-01-31"}`. It arrives as a date, also if the
parameter has no annotation. Numbers that JSON does not have, such as NaN, travel in the same way.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from qbull.errors import ArgumentsError, PayloadError

TYPE_FIELD, VALUE_FIELD = "__type__", "__value__"
TYPE_FIELD_BYTES = b'"__type__"'
"""A payload without these bytes has only values that JSON keeps."""

_TO_TEXT: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Decimal, "decimal", str),
    (UUID, "uuid", str),
    (bytes, "bytes", lambda value: b64encode(value).decode()),
    (bytearray, "bytearray", lambda value: b64encode(value).decode()),
    (tuple, "tuple", lambda value: [with_types(each) for each in value]),
    (set, "set", lambda value: [with_types(each) for each in value]),
    (frozenset, "frozenset", lambda value: [with_types(each) for each in value]),
)
"""Types with their names and how they are written. A subclass comes before its base."""
_STRICT_TYPES = frozenset({str, bool, int, float, *(kind for kind, _, _ in _TO_TEXT)})
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": b64decode,
    "bytearray": lambda text: bytearray(b64decode(text)),
    "tuple": lambda items: tuple(map(as_it_was, items)),
    "set": lambda items: set(map(as_it_was, items)),
    "frozenset": lambda items: frozenset(map(as_it_was, items)),
    "float": float,
    "dict": lambda items: {name: as_it_was(value) for name, value in items.items()},
    "mapping": lambda items: {as_it_was(key): as_it_was(value) for key, value in items},
}


def with_types(value: Any) -> Any:
    """Return a value in a form that JSON keeps. Other objects are left to the encoder."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {TYPE_FIELD: "float", VALUE_FIELD: repr(value)}
    if isinstance(value, list):
        return [with_types(each) for each in value]
    if isinstance(value, dict):
        return _with_types_of_items(value)
    for kind, name, write in _TO_TEXT:
        if isinstance(value, kind):
            return {TYPE_FIELD: name, VALUE_FIELD: write(value)}
    return value


def with_types_inside(value: Any, write: Callable[[Any], Any] = with_types) -> Any:
    """Return a container whose items JSON keeps. The container itself arrives as its annotation says.

    Args:
        value: The container.
        write: How an item is written.
    """
    if isinstance(value, dict):
        return _with_types_of_items(value, write)
    if isinstance(value, list | tuple | set | frozenset):
        return [write(each) for each in value]
    return value


def strictly_with_types(value: Any) -> Any:
    """The same as `with_types` for values that must arrive with their own type: others are refused.

    A dictionary keeps keys that are no texts.
    """
    kind = type(value)
    if kind is list:
        return [strictly_with_types(each) for each in value]
    if kind in (tuple, set, frozenset):
        return {TYPE_FIELD: kind.__name__, VALUE_FIELD: [strictly_with_types(each) for each in value]}
    if kind is dict:
        if all(type(name) is str for name in value):
            return _with_types_of_items(value, strictly_with_types)
        items = [[strictly_with_types(key), strictly_with_types(each)] for key, each in value.items()]
        return {TYPE_FIELD: "mapping", VALUE_FIELD: items}
    if value is None or kind in _STRICT_TYPES:
        return with_types(value)
    raise PayloadError(
        f"{value!r:.80} is of type {kind.__qualname__}, which arrives only with an annotation; "
        "annotate it, or use plain values"
    )


def as_it_was(value: Any) -> Any:
    """Return the value that `with_types` got."""
    if isinstance(value, list):
        return [as_it_was(each) for each in value]
    if isinstance(value, tuple):
        return tuple(as_it_was(each) for each in value)
    if not isinstance(value, dict):
        return value
    read = _FROM_TEXT.get(value.get(TYPE_FIELD, "")) if len(value) == 2 and VALUE_FIELD in value else None
    if read is None:
        return {name: as_it_was(each) for name, each in value.items()}
    try:
        return read(value[VALUE_FIELD])
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ArgumentsError(f"{value!r:.80} is no {value[TYPE_FIELD]}: {error}") from None


def _with_types_of_items(value: dict[Any, Any], write: Callable[[Any], Any] = with_types) -> dict[Any, Any]:
    for name in value:
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise PayloadError(f"{name!r:.80} is a key of a dictionary; use texts as keys")
    items = {name: write(each) for name, each in value.items()}
    return {TYPE_FIELD: "dict", VALUE_FIELD: items} if TYPE_FIELD in value else items
