"""A finding of `qbull doctor`: what it checked, what it saw, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    level: FindingLevel
    subject: str
    fact: str
    next_step: str | None = None

    @property
    def line(self) -> str:
        return f"{self.level:<8} {self.subject}: {self.fact}" + (
            f"; {self.next_step}" if self.next_step else ""
        )


def ok(subject: str, fact: str) -> Finding:
    return Finding("ok", subject, fact)


def note(subject: str, fact: str, next_step: str | None = None) -> Finding:
    return Finding("note", subject, fact, next_step)


def problem(subject: str, fact: str, next_step: str) -> Finding:
    return Finding("problem", subject, fact, next_step)
