"""Health: the problems of the queues, each as a code with its values and as a sentence.

The health endpoint, `qbull doctor` and the dashboard report the same problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

HealthCode: TypeAlias = Literal["away", "unserved", "stale", "halted", "paused"]

ALL_HEALTHY = "all queues work normally"


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """One problem. `fact` is for people; `code` and `values` are for programs with their own wording.

    A problem that is not `serious` waits for a person and blocks nothing else.
    """

    code: HealthCode
    fact: str
    queue: str | None = None
    serious: bool = True
    values: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.fact if self.queue is None else f'queue "{self.queue}": {self.fact}'


def unavailable() -> HealthProblem:
    return HealthProblem("away", "the server of the jobs cannot be reached")


def unserved(queue: str, waiting: int) -> HealthProblem:
    return HealthProblem(
        "unserved", f"{_wait(waiting)} and no worker serves it", queue, values={"jobs": waiting}
    )


def stale(queue: str, seconds: float) -> HealthProblem:
    fact = f"stale, its oldest waiting job could have run {seconds:.0f} s ago"
    return HealthProblem("stale", fact, queue, values={"seconds": round(seconds)})


def halted(queue: str, keys: int, waiting: int) -> HealthProblem:
    """The keys are left out: anybody may read the health."""
    behind = f", {_wait(waiting)} behind" if waiting else ""
    fact = f"{keys} {'keys are' if keys > 1 else 'key is'} halted by a dead letter{behind}"
    return HealthProblem("halted", fact, queue, serious=False, values={"keys": keys, "jobs": waiting})


def paused(queue: str, waiting: int) -> HealthProblem:
    return HealthProblem(
        "paused", f"paused, {_wait(waiting)}", queue, serious=False, values={"jobs": waiting}
    )


def summarize(ills: Sequence[HealthProblem]) -> str:
    """The most important one first."""
    return "; ".join(ill.text for ill in sorted(ills, key=lambda ill: not ill.serious)) or ALL_HEALTHY


def _wait(jobs: int) -> str:
    return f"{jobs:,} {'jobs wait' if jobs > 1 else 'job waits'}"
