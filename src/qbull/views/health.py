"""Shapes of health: the problems of an app, and the verdict about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from qbull.core.health_problem import HealthProblem, HealthStatus, Severity, status_of, summarize
from qbull.core.problems import ProblemKind
from qbull.views.queues import StatsView
from qbull.views.shape import Instant, Shape, Timestamp, instant, view_of


class HealthProblemView(Shape, kw_only=True):
    """A problem: `text`, `fact` and `remedy` for people, `code` with its `values` for programs. `since` is
    when it started. `partitions`, `schedule`, `task`, `limit`, `worker` and `workers` say what it concerns,
    `by` who caused it; the last three are for authenticated callers. `serious` is true if the severity is
    critical.
    """

    code: ProblemKind
    severity: Severity
    serious: bool
    queue: str | None
    partitions: list[int]
    schedule: str | None
    task: str | None
    worker: str | None
    workers: list[str]
    by: str | None
    limit: str | None
    since: Instant | None
    text: str
    fact: str
    remedy: str
    values: dict[str, int]

    @classmethod
    def of(cls, problem: HealthProblem, *, anonymous: bool = False) -> HealthProblemView:
        """Anonymous callers see no workers and no people: names of workers contain those of machines."""
        return view_of(
            cls,
            problem,
            code=problem.kind,
            serious=problem.severity == "critical",
            partitions=list(problem.partitions),
            worker=None if anonymous else problem.worker,
            workers=[] if anonymous else list(problem.workers),
            by=None if anonymous else problem.by,
            since=instant(problem.since_ms),
        )


class VerdictView(Shape, kw_only=True):
    """The verdict about all queues: unhealthy with a critical problem, degraded with a warning, otherwise
    healthy. `message` sums up the `problems`, the most severe first.
    """

    status: HealthStatus
    message: str
    problems: list[HealthProblemView]

    @classmethod
    def of(cls, problems: Sequence[HealthProblem]) -> VerdictView:
        return cls(
            status=status_of(problems),
            message=summarize(problems),
            problems=[HealthProblemView.of(one) for one in problems],
        )


class HealthView(Shape, kw_only=True):
    """The health of all queues: unhealthy with a critical problem, degraded with a warning, otherwise
    healthy. `message` sums up the `problems`, the most severe first.
    """

    status: HealthStatus
    message: str
    problems: list[HealthProblemView]
    details: dict[str, StatsView]
    timestamp: Timestamp


class AliveView(Shape, kw_only=True):
    """The state of the API for load balancers."""

    status: Literal["ok", "away"]
    message: str
