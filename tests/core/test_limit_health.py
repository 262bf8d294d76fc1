"""Shared limits in the verdict: jobs that wait for long, and code that does not agree."""

from __future__ import annotations

import pytest

from qbull.core.health import HealthLimits, find_problems
from qbull.core.health_facts import HealthFacts, LimitFacts
from qbull.core.health_problem import HealthProblem, status_of

NOW_MS = 1_800_000_000_000


def problems(*limits: LimitFacts) -> tuple[HealthProblem, ...]:
    return find_problems(HealthFacts(NOW_MS, limits=limits), HealthLimits(stale_after=60))


@pytest.mark.parametrize(("seconds", "told"), [(59, False), (60, True)])
def test_a_limit_that_holds_up_jobs_for_long_is_a_problem(seconds: int, told: bool) -> None:
    found = problems(LimitFacts("openai", 12, NOW_MS - seconds * 1000))

    assert [one.kind for one in found] == (["limited"] if told else [])
    if told:
        assert found[0].text == 'limit "openai": 12 jobs wait for it, the oldest for 60 s'
        assert (found[0].limit, found[0].since_ms) == ("openai", NOW_MS - 60_000)


def test_a_spent_budget_is_named_as_the_reason() -> None:
    [found] = problems(LimitFacts("openai", 1, NOW_MS - 90_000, is_spent=True))

    assert found.fact == "1 job waits for it, the oldest for 90 s; its budget of the day is spent"


def test_a_limit_that_live_workers_declare_differently_is_a_problem() -> None:
    [found] = problems(LimitFacts("openai", declarations=("rate 100/60", "rate 500/60")))

    assert found.kind == "conflicting"
    assert "2 different values (rate 100/60; rate 500/60)" in found.fact
    assert status_of([found]) == "degraded"


def test_a_limit_on_which_all_agree_is_no_problem() -> None:
    assert problems(LimitFacts("openai", declarations=("rate 100/60",))) == ()
