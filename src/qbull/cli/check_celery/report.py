"""Report: what a check of a Celery project has found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qbull.compat.celery.support import Support, SupportLevel


class CeleryUse(msgspec.Struct, frozen=True):
    """One use of a name of Celery in a project."""

    level: SupportLevel
    what: str
    note: str
    file: str
    line: int


class DeclaredTask(msgspec.Struct):
    """A task that a project declares, and whether qbull accepts it as declared."""

    name: str
    file: str
    line: int
    accepted: bool = True


@dataclass
class CheckReport:
    """Everything that was found in a project."""

    files: int = 0
    skipped_tests: int = 0
    unreadable: list[str] = field(default_factory=list)
    """Files that this Python cannot parse."""
    findings: list[CeleryUse] = field(default_factory=list)
    tasks: list[DeclaredTask] = field(default_factory=list)

    def add(self, what: str, support: Support, file: str, line: int) -> None:
        """Record one use of a name."""
        self.findings.append(CeleryUse(support.level, what, support.note, file, line))

    def of_level(self, level: SupportLevel) -> list[CeleryUse]:
        """Return the findings of one level, by file and line."""
        found = [each for each in self.findings if each.level == level]
        return sorted(found, key=lambda each: (each.file, each.line, each.what))

    @property
    def accepted(self) -> int:
        return sum(task.accepted for task in self.tasks)

    @property
    def share(self) -> float | None:
        """The share of tasks that are accepted as declared; None without tasks."""
        return self.accepted / len(self.tasks) if self.tasks else None

    def works(self) -> list[tuple[str, int, CeleryUse]]:
        """Return each name that works, with the number of its uses and the first of them."""
        found = self.of_level("works")
        counts = Counter(each.what for each in found)
        first = {each.what: each for each in reversed(found)}
        return [(what, count, first[what]) for what, count in counts.most_common()]

    def as_json(self) -> dict[str, Any]:
        """Return the report for other programs."""
        return {
            "files": self.files,
            "skipped_tests": self.skipped_tests,
            "unreadable": self.unreadable,
            "tasks": len(self.tasks),
            "accepted": self.accepted,
            "share": self.share,
            "must_change": self.of_level("refused"),
            "differs": self.of_level("differs"),
            "works": self.of_level("works"),
            "declared": self.tasks,
        }
