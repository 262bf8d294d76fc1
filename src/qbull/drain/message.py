"""A job of another library in qbull's terms, and the reason why a job cannot be moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from qbull.core.schedule_rule import ScheduleOptions
from qbull.queue import Queue


class CannotMove(Exception):
    """The job cannot be moved. The text has the reason and the remedy."""


@dataclass(frozen=True)
class ForeignFailure:
    """How a job has failed permanently in the other library.

    `attempts` counts its runs, and `created_ms` is the time at which it was enqueued there.
    """

    error: str
    attempts: int
    stacktrace: str | None = None
    created_ms: int = 0


@dataclass(frozen=True)
class ForeignJob:
    """A job of another library.

    `stamp` tells it from others with the same id. Two deliveries of one message have the same stamp.
    A job with a `failure` becomes a dead letter. With `has_texts` its arguments are texts, which are
    converted to the types that the task asks for. `check_task` gets the queue and the name of its new task,
    and raises CannotMove if that one cannot do what the job asks for.
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
    failure: ForeignFailure | None = None
    has_texts: bool = False
    check_task: Callable[[Queue, str], None] | None = None


@dataclass(frozen=True)
class ForeignSchedule:
    """A schedule of another library. `rule` has the settings of `app.schedules.upsert`."""

    id: str
    queue: str
    task: str
    kwargs: Mapping[str, Any]
    rule: ScheduleOptions
    cron: str | None = None


@dataclass(frozen=True)
class SourceMessage:
    """A message on the old server.

    `value` identifies it there, `name` identifies it while it is set aside, and `stored` has everything that
    its job needs.
    """

    name: str
    value: bytes
    stored: bytes
    leftover_keys: Sequence[str] = ()
    """Keys of this message alone, which are deleted when the message is set aside."""
