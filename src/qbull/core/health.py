"""Verdict: what is wrong with the queues, each thing as a code with its values and in words. Health, the doctor and the dashboard say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Code: TypeAlias = Literal["away", "unserved", "stale", "halted", "paused"]

WELL = "all queues work normally"


@dataclass(frozen=True, slots=True)
class Ill:
    """One thing that is wrong. `fact` is for people, `code` and `values` for programs that say it in their own words.

    One that is not `serious` waits for a person, and hinders nothing else.
    """

    code: Code
    fact: str
    queue: str | None = None
    serious: bool = True
    values: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.fact if self.queue is None else f'queue "{self.queue}": {self.fact}'


def away() -> Ill:
    return Ill("away", "the server of the jobs cannot be reached")


def unserved(queue: str, waiting: int) -> Ill:
    return Ill("unserved", f"{_wait(waiting)} and no worker serves it", queue, values={"jobs": waiting})


def stale(queue: str, seconds: float) -> Ill:
    fact = f"stale, its oldest waiting job could have run {seconds:.0f} s ago"
    return Ill("stale", fact, queue, values={"seconds": round(seconds)})


def halted(queue: str, keys: int, waiting: int) -> Ill:
    """Which keys is not said: anybody may ask for the health."""
    behind = f", {_wait(waiting)} behind" if waiting else ""
    fact = f"{keys} {'keys are' if keys > 1 else 'key is'} halted by a dead letter{behind}"
    return Ill("halted", fact, queue, serious=False, values={"keys": keys, "jobs": waiting})


def paused(queue: str, waiting: int) -> Ill:
    return Ill("paused", f"paused, {_wait(waiting)}", queue, serious=False, values={"jobs": waiting})


def in_words(ills: Sequence[Ill]) -> str:
    """What matters most first."""
    return "; ".join(ill.text for ill in sorted(ills, key=lambda ill: not ill.serious)) or WELL


def _wait(jobs: int) -> str:
    return f"{jobs:,} {'jobs wait' if jobs > 1 else 'job waits'}"
