"""Shapes of kinds of errors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from qbull.views.shape import AnswerShape, Instant, Shape, ShortText


class ErrorsQuery(Shape, kw_only=True):
    """The period in minutes, up to a day."""

    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class AcknowledgeBody(Shape, kw_only=True):
    """A note for those who see the error next."""

    note: ShortText


class AcknowledgedView(Shape, kw_only=True):
    """Who knows of a kind of error, since when, and a note.

    `returned` is null while that counts. "reappeared": it failed again after a quiet hour. "rate": it fails
    far more often than before.
    """

    by: str
    at: Instant
    note: str
    returned: Literal["reappeared", "rate"] | None


class ErrorKindView(Shape, kw_only=True):
    """Jobs of a queue that failed permanently with the same kind of error, counted as they failed.

    `count` of them in the period, `total` since `firstAt`. `error` has no details; `lastError` is the error
    of `lastId`, the newest. `task` is null if that job no longer exists. `acknowledged`: who knows of it.
    """

    queue: str
    fingerprint: str
    error: str
    last_error: str
    task: str | None
    count: int
    total: int
    first_at: Instant
    last_at: Instant
    last: str = msgspec.field(name="lastId")
    acknowledged: AcknowledgedView | None = None


class ErrorsView(AnswerShape, kw_only=True):
    """Kinds of errors of all queues, the most frequent first. `others` failed with kinds not shown."""

    minutes: int
    kinds: list[ErrorKindView]
    others: int


class ErrorMinuteView(Shape, kw_only=True):
    """The number of failures in a minute."""

    at: Instant
    count: int


class ErrorHistoryView(AnswerShape, kw_only=True):
    """One kind of error, and the minutes of the period in which jobs failed with it."""

    kind: ErrorKindView
    history: list[ErrorMinuteView]
