"""Values without a JSON form of their own: how they become plain data, and how annotations turn them back.

msgspec calls `to_plain` and `from_plain` for types that it does not know. An app and a task can put hooks of
their own before these. numpy and pandas are recognised by the names of their types, so qbull never imports
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence, Set, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from qbull.core.schema_check import MODEL_COMMENT

EncHook = Callable[[Any], Any]
DecHook = Callable[[Any, Any], Any]

MAX_RANGE_ITEMS = 1_000_000
MAX_PATH_DEPTH = 32

_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_AS_TEXT = (PurePath, UUID, Decimal, *_ADDRESSES)
_AS_LIST = (Sequence, Set, ValuesView)
_MADE_OF_TEXT = (str, PurePath, *_ADDRESSES)
_IN_FRAMES = {
    "ndarray": ".tolist()",
    "Series": ".tolist()",
    "Index": ".tolist()",
    "DataFrame": '.to_dict("records")',
}


_ONLY_KEYS = (tuple, list, frozenset, dict, set, bytes, type(None))
"""Types that msgspec encodes itself: it asks about them only if they are keys of a dictionary."""


class ValueHooks(NamedTuple):
    """How values without a JSON form travel: the hooks that msgspec gets."""

    encode: EncHook
    decode: DecHook
    takes_any_type: bool = False
    """A dec_hook of the user may know any annotation, so none is refused when the task is declared."""


def to_plain(value: Any) -> Any:
    """The value as plain data. Raises TypeError if it has no such form."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, _ONLY_KEYS):
        raise TypeError(f"a {type(value).__qualname__} cannot be a key of a dictionary; use texts or numbers")
    if (made := _plain_scalar(value)) is not NotImplemented:
        return made
    if isinstance(value, range) and len(value) > MAX_RANGE_ITEMS:
        raise ValueError(f"a range of {len(value):,} numbers is too long; pass its start and its end")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _AS_LIST):
        return list(value)
    name = type(value).__qualname__
    instead = _IN_FRAMES.get(name) if _library(type(value)) else None
    remedy = "pass plain data, a dataclass or a model, or give the app or the task an enc_hook"
    if instead:
        remedy = f"pass value{instead}, or give the app the hooks of qbull.contrib.arrays"
    raise TypeError(f"a {name} has no JSON form; {remedy}")


def _plain_scalar(value: Any) -> Any:
    """A number, a text or a time whose type is not the built-in one; NotImplemented for anything else."""
    kind = type(value)
    if kind.__name__ in ("NaTType", "NAType") and _library(kind) == "pandas":
        return None
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, _AS_TEXT):
        return str(value)
    return _plain_numpy(value) if _is_numpy_scalar(kind) else NotImplemented


def _plain_numpy(value: Any) -> Any:
    item = value.item()
    if isinstance(item, int) and type(value).__name__ in ("datetime64", "timedelta64"):
        # Of nanoseconds, numpy makes a number.
        item = value.astype(f"{type(value).__name__}[us]").item()
    return item


def from_plain(kind: Any, value: Any) -> Any:
    """The value of an annotated type, from plain data. Raises an error if there is no such form."""
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(kind, type):
        if kind is range:
            return _range_of(value)
        if issubclass(kind, _MADE_OF_TEXT):
            return kind(_checked(value, str))
        if issubclass(kind, datetime):
            make: Any = kind if _library(kind) else kind.fromisoformat
            return make(_checked(value, str))
        if issubclass(kind, timedelta):
            plain = _checked(value, timedelta)
            return kind(days=plain.days, seconds=plain.seconds, microseconds=plain.microseconds)
        for number in (int, float):
            if issubclass(kind, number):
                return kind(_checked(value, number))
        if _is_numpy_scalar(kind):
            return _numpy_of(kind, value)
    raise TypeError(f"{getattr(kind, '__qualname__', kind)} cannot be made from a payload")


def _checked(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # of a ValueError, msgspec names the path


def _range_of(value: Any) -> range:
    numbers = _checked(value, list[int])
    if not numbers:
        return range(0)
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    made = range(numbers[0], numbers[-1] + (1 if step > 0 else -1), step) if step else range(0)
    if len(made) != len(numbers) or list(made) != numbers:
        raise ValueError("expected numbers at equal distances for a range")
    return made


def _numpy_of(kind: Any, value: Any) -> Any:
    if kind.__name__ == "timedelta64":
        return kind(_checked(value, timedelta))
    if kind.__name__ == "datetime64":
        return kind(_checked(value, str))
    is_whole = any(base.__name__ == "integer" for base in kind.__mro__)
    number = _checked(value, int if is_whole else float | int | bool)
    try:
        made = kind(number)
    except OverflowError:
        made = None
    if isinstance(number, int) and made != number:
        raise ValueError(f"{number} is out of the bounds of {kind.__name__}")
    return made


def knows_type(kind: Any) -> bool:
    """Whether `from_plain` can make values of an annotated type that msgspec does not know."""
    if hasattr(kind, "model_validate"):
        return True
    known = (range, datetime, timedelta, int, float, *_MADE_OF_TEXT)
    return isinstance(kind, type) and (issubclass(kind, known) or _is_numpy_scalar(kind))


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type that msgspec does not know."""
    describe = getattr(kind, "model_json_schema", None)
    if describe is not None:
        return {"$comment": MODEL_COMMENT, **describe()}
    if isinstance(kind, type):
        if kind is range:
            return {"type": "array", "items": {"type": "integer"}}
        for of_text, form in ((datetime, "date-time"), (timedelta, "duration"), (PurePath, "path")):
            if issubclass(kind, of_text):
                return {"type": "string", "format": form}
        for plain, word in ((int, "integer"), (float, "number"), (_MADE_OF_TEXT, "string")):
            if issubclass(kind, plain):
                return {"type": word}
    return title_of(kind)


def title_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type whose form nobody knows."""
    return {"title": getattr(kind, "__name__", str(kind))}


def make_hooks(enc_hook: EncHook | None, dec_hook: DecHook | None, base: ValueHooks) -> ValueHooks:
    """Hooks of a user before those of `base`. NotImplementedError leaves a value to the next hook."""
    if enc_hook is None and dec_hook is None:
        return base

    def encode(value: Any) -> Any:
        if enc_hook is not None:
            try:
                return enc_hook(value)
            except NotImplementedError:
                pass
        return base.encode(value)

    def decode(kind: Any, value: Any) -> Any:
        if dec_hook is not None:
            try:
                return dec_hook(kind, value)
            except NotImplementedError:
                pass
        return base.decode(kind, value)

    return ValueHooks(encode, decode, base.takes_any_type or dec_hook is not None)


DEFAULT_HOOKS = ValueHooks(to_plain, from_plain)
"""The hooks of an app that has none of its own."""


def explain_unencodable(value: Any, error: Exception, hooks: ValueHooks) -> str:
    """Why a value cannot be encoded, with the path to the part that cannot: `rows[3].price: …`."""
    if isinstance(error, RecursionError):
        return str(error)
    path = ""
    for _ in range(MAX_PATH_DEPTH):
        for step, part in _parts(value):
            try:
                msgspec.json.encode(part, enc_hook=hooks.encode)
            except Exception as reason:  # a hook may raise anything
                path, value, error = path + step, part, reason
                break
        else:
            break
    path = path.removeprefix(".")
    text = str(error) or type(error).__name__
    return f"{path}: {text}" if path else text


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r:.60}]"), part
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(value):
            yield f"[{number}]", part
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f".{name}", getattr(value, name, None)


def _library(kind: type) -> str:
    """The library of a type, if it is one of those whose types are known by name; else an empty text."""
    name = kind.__module__.partition(".")[0]
    return name if name in ("numpy", "pandas") else ""


def _is_numpy_scalar(kind: type) -> bool:
    return any(base.__name__ == "generic" and base.__module__ == "numpy" for base in kind.__mro__)
