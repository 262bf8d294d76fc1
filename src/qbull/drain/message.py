"""A job of another library in qbull's terms, and the reason why a job cannot be moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


class CannotMove(Exception):
    """The job cannot be moved. The text has the reason and the remedy."""


@dataclass(frozen=True)
class ForeignJob:
    """A job of another library.

    `stamp` tells it from others with the same id. Two deliveries of one message have the same stamp.
    """

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
    """A message on the old server.

    `value` identifies it there, `name` identifies it while it is set aside, and `stored` has everything that
    its job needs.
    """

    name: str
    value: bytes
    stored: bytes
    leftover_key: str = ""
    """A key of this message alone, which is deleted when the message is set aside."""
