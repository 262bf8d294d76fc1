"""A health problem: one thing that is wrong, how severe it is, and what to do about it.

The facts and remedies in words name no key, no worker and no error: anybody may ask for the health.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from qbull.core.problems import ProblemKind

Severity: TypeAlias = Literal["critical", "warning", "info"]
HealthStatus: TypeAlias = Literal["healthy", "degraded", "unhealthy"]

ALL_HEALTHY = "all queues work normally"
PROBLEM_SEVERITIES: dict[ProblemKind, Severity] = {
    "away": "critical",
    "unreadable": "critical",
    "unserved": "critical",
    "unread": "critical",
    "unknown": "critical",
    "stale": "critical",
    "overdue": "critical",
    "blocked": "warning",
    "halted": "warning",
    "lost": "warning",
    "failing": "warning",
    "failed": "warning",
    "repeated": "warning",
    "missed": "warning",
    "limited": "warning",
    "conflicting": "warning",
    "paused": "info",
    "retention": "info",
}
"""The severity of each kind. A pause whose backlog grows is a warning."""


class HealthProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    `fact` and `remedy` are for people; `kind` and `values` are for programs that use their own words. `by` is
    who caused it, and `workers` are those that were lost. Only people with a token may see `worker`,
    `workers` and `by`.
    """

    kind: ProblemKind
    fact: str
    remedy: str
    queue: str | None = None
    since_ms: int | None = None
    partitions: tuple[int, ...] = ()
    schedule: str | None = None
    task: str | None = None
    worker: str | None = None
    workers: tuple[str, ...] = ()
    by: str | None = None
    limit: str | None = None
    values: dict[str, int] = msgspec.field(default_factory=dict)
    severity: Severity = "critical"

    @property
    def subject(self) -> str:
        if self.schedule is not None:
            return f'schedule "{self.schedule}"'
        if self.limit is not None:
            return f'limit "{self.limit}"'
        if self.queue is not None:
            return f'queue "{self.queue}"'
        return "workers" if self.kind == "lost" else "server"

    @property
    def text(self) -> str:
        return f"{self.subject}: {self.fact}"


def unavailable(since_ms: int | None = None) -> HealthProblem:
    return HealthProblem(
        "away",
        "the job server cannot be reached",
        'start it, or see "qbull doctor"',
        since_ms=since_ms,
    )


def status_of(problems: Iterable[HealthProblem]) -> HealthStatus:
    """Unhealthy with a critical problem, degraded with a warning."""
    severities = {one.severity for one in problems}
    if "critical" in severities:
        return "unhealthy"
    return "degraded" if "warning" in severities else "healthy"


def summarize(problems: Sequence[HealthProblem]) -> str:
    """The problems in one line."""
    return "; ".join(one.text for one in problems) or ALL_HEALTHY
