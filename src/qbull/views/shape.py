"""Shape: what the shapes have in common: names are camelCase on the wire, and what is not known is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

S = TypeVar("S")

LONGEST = 316_224_000
"""Seconds: ten years."""

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
Text = Annotated[str, Meta(min_length=1, max_length=500)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
State = Literal["waiting", "active", "delayed", "completed", "failed", "cancelled"]


class Shape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class Said(Shape, kw_only=True):
    """What most answers begin with."""

    success: bool = True
    timestamp: Moment


def shaped(made: Any, shape: type[S]) -> S:
    """What was made elsewhere, in its shape."""
    return msgspec.convert(made, shape)
