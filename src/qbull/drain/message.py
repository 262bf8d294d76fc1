"""A job of another library in qbull's terms, and the reason why a job cannot be moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


class CannotMove(Exception):
    """It cannot be moved. The text says why, and what to do."""


@dataclass(frozen=True)
class ForeignJob:
    """`stamp` tells it from others that have the same id: of a message that was sent twice it is the same."""

    id: str
    stamp: str
    queue: str
    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    at: datetime | None = None
    expires: datetime | None = None
    priority: int = 5
    timeout: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceMessage:
    """A message as it lies on the old server.

    `value` is what names it there, `name` what it is called while it is set aside, `stored` all that its job
    is made of.
    """

    name: str
    value: bytes
    stored: bytes
    leftover_key: str = ""
    """A name that only it has, and that goes when it is taken from there."""
