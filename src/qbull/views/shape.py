"""Shape: what the shapes have in common: names are camelCase on the wire, and what is not known is refused."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from qbull.core.record import State

S = TypeVar("S")

MAX_API_DURATION_SECONDS = 316_224_000
"""Seconds: ten years."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
ResourceName = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
ShortText = Annotated[str, Meta(min_length=1, max_length=500)]
DurationSeconds = Annotated[float, Meta(ge=0, le=MAX_API_DURATION_SECONDS)]
PositiveCount = Annotated[int, Meta(ge=1, le=1_000_000_000)]


JobStateName = State


class Shape(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pass


class AnswerShape(Shape, kw_only=True):
    """What most answers begin with."""

    success: bool = True
    timestamp: Timestamp


def to_shape(made: Any, shape: type[S]) -> S:
    """What was made elsewhere, in its shape."""
    return msgspec.convert(made, shape)
