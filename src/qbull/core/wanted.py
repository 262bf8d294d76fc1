"""Wanted: which finished jobs are meant, by task, error and time. The same words for looking, redriving and cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from qbull.core.failures import fingerprint
from qbull.errors import ArgumentsError


class Filters(TypedDict, total=False):
    """`after` and `before` are about when a job finished, and must have a time zone."""

    task: str | None
    error_contains: str | None
    fingerprint: str | None
    after: datetime | None
    before: datetime | None


@dataclass(frozen=True, slots=True)
class Wanted:
    task: str | None = None
    error_contains: str | None = None
    fingerprint: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("task", "error_contains", "fingerprint"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ArgumentsError(f"{name}={value!r}: give a text that is not empty")
        for name in ("after", "before"):
            at = getattr(self, name)
            if at is not None and at.utcoffset() is None:
                raise ArgumentsError(
                    f"{name}={at.isoformat()}: has no time zone; use an aware datetime, for example datetime.now(UTC)"
                )

    def accepts(self, task: str, error: str | None) -> bool:
        """Is a job meant that finished at the right time? Upper and lower case of an error do not matter."""
        if self.task is not None and task != self.task:
            return False
        if self.error_contains is not None and self.error_contains.lower() not in (error or "").lower():
            return False
        return self.fingerprint is None or (error is not None and fingerprint(error) == self.fingerprint)

    @property
    def everything(self) -> bool:
        """Does it depend on nothing but the time?"""
        return self.task is None and self.error_contains is None and self.fingerprint is None

    @property
    def after_ms(self) -> int | None:
        return None if self.after is None else int(self.after.timestamp() * 1000)

    @property
    def before_ms(self) -> int | None:
        return None if self.before is None else int(self.before.timestamp() * 1000)
