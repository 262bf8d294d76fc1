"""The health of shared limits: jobs that wait for one for long, and code that does not agree on one."""

from __future__ import annotations

from qbull.core.health_facts import LimitFacts
from qbull.core.health_problem import PROBLEM_SEVERITIES, HealthProblem


def limit_problems(limit: LimitFacts, now_ms: int, held_after: float) -> list[HealthProblem]:
    """The problems of one limit. Jobs may wait for it for `held_after` seconds."""
    found = []
    if limit.since_ms is not None and now_ms - limit.since_ms >= held_after * 1000:
        found.append(_limited(limit, limit.since_ms, now_ms))
    if len(limit.declarations) > 1:
        found.append(_conflicting(limit))
    return found


def _limited(limit: LimitFacts, since_ms: int, now_ms: int) -> HealthProblem:
    seconds = (now_ms - since_ms) // 1000
    jobs = f"{limit.waiting:,} {'jobs wait' if limit.waiting != 1 else 'job waits'} for it"
    reason = "; its budget of the day is spent" if limit.is_spent else ""
    return HealthProblem(
        "limited",
        f"{jobs}, the oldest for {seconds:,} s{reason}",
        f'see "qbull limits", and raise it with "qbull limits set {limit.name} …" if the service allows more',
        since_ms=since_ms,
        limit=limit.name,
        values={"jobs": limit.waiting, "seconds": seconds, "spent": int(limit.is_spent)},
        severity=PROBLEM_SEVERITIES["limited"],
    )


def _conflicting(limit: LimitFacts) -> HealthProblem:
    values = "; ".join(limit.declarations)
    return HealthProblem(
        "conflicting",
        f"the code of live workers declares it with {len(limit.declarations)} different values ({values})",
        "the worker that started last wins; deploy one version, or give the limits different names",
        limit=limit.name,
        values={"declarations": len(limit.declarations)},
        severity=PROBLEM_SEVERITIES["conflicting"],
    )
