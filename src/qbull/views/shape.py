"""Shape: the base of all JSON shapes, and the conversions from an object to a view and from a view to JSON.

Names are camelCase in JSON, times ISO 8601 in UTC with a Z, durations milliseconds unless the name says
otherwise. Unknown fields of a request are refused. Unknown values are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

from qbull.core.job_info import Instant as Instant
from qbull.core.record import to_datetime

S = TypeVar("S")

MAX_API_DURATION_SECONDS = 316_224_000
"""Ten years."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Moment = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{1,9}(\.[0-9]{1,6})?[smhdw]|now|today|yesterday|tomorrow|"
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(.{1,40})?)$"
    ),
]
"""A time as people write it: see core.moment."""
ResourceName = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
ShortText = Annotated[str, Meta(min_length=1, max_length=500)]
DurationSeconds = Annotated[float, Meta(ge=0, le=MAX_API_DURATION_SECONDS)]
PositiveCount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class Shape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The base of all shapes."""


class AnswerShape(Shape, kw_only=True):
    """The fields that most answers start with."""

    success: bool = True
    timestamp: Timestamp


def view_of(shape: type[S], source: Any, **more: Any) -> S:
    """Build a view from an object with attributes of the same names.

    Args:
        shape: The view's type.
        source: The object, or another view.
        **more: Fields that the object lacks, or has with another value.
    """
    if more:
        names = shape.__struct_fields__  # type: ignore[attr-defined]
        source = _Attributes(
            {name: getattr(source, name) for name in names if name not in more and hasattr(source, name)}
            | more
        )
    return msgspec.convert(source, shape, from_attributes=True)


class _Attributes:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def to_plain(value: Any) -> Any:
    """Turn a view into dicts, lists and texts, as they are written in JSON."""
    match value:
        case msgspec.Struct():
            return {
                name: inner if free else to_plain(inner)
                for field, name, free in _fields(type(value))
                for inner in (getattr(value, field),)
            }
        case datetime():
            return iso_time(value)
        case list() | tuple():
            return [to_plain(one) for one in value]
        case dict():
            return {name: to_plain(one) for name, one in value.items()}
    return value


@cache
def _fields(shape: type[msgspec.Struct]) -> list[tuple[str, str, bool]]:
    """Name, name in JSON, and whether the value is arbitrary JSON, which is passed on as it is."""
    hints = get_type_hints(shape)
    return [
        (field.name, field.encode_name, hints[field.name] is Any) for field in msgspec.structs.fields(shape)
    ]


def field_list(shape: type[msgspec.Struct]) -> str:
    """The names of a shape's fields in JSON, for help texts."""
    return ", ".join(field.encode_name for field in msgspec.structs.fields(shape))


def iso_time(at: datetime) -> str:
    """A time as ISO 8601 in UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(ms: int | None) -> datetime | None:
    """A time from milliseconds; None stays None."""
    return None if ms is None else to_datetime(ms)
