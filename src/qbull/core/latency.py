"""Latency: wait and run times by time, as percentiles. Pure; store/read/latency.py reads the counts.

Workers count in buckets that double (core/histograms.py), so a percentile is exact to its bucket and
interpolated in it. Counts are kept by the minute for a day and by the hour for 30 days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from qbull.core.digits import whole_number
from qbull.core.histograms import SUM_INDEX, quantile

LatencySpan: TypeAlias = Literal["1h", "24h", "7d", "30d"]
Slices: TypeAlias = Mapping[int, Mapping[str, int]]
"""The number of a minute or hour since 1970, and its counts by name."""


class SpanForm(NamedTuple):
    """The form of a chart: the unit of its counts in seconds, units in a step, and its number of steps."""

    unit_seconds: int
    units: int
    steps: int

    @property
    def step_seconds(self) -> int:
        return self.unit_seconds * self.units


SPANS: dict[LatencySpan, SpanForm] = {
    "1h": SpanForm(60, 1, 60),
    "24h": SpanForm(60, 10, 144),
    "7d": SpanForm(3600, 1, 168),
    "30d": SpanForm(3600, 6, 120),
}


@dataclass(slots=True)
class TaskLatency:
    """Waits and durations of a task in one step, by the length of their microseconds in bits."""

    waits: Counter[int] = field(default_factory=Counter)
    runs: Counter[int] = field(default_factory=Counter)

    def add(self, other: TaskLatency) -> None:
        self.waits.update(other.waits)
        self.runs.update(other.runs)


class Percentiles(NamedTuple):
    """Median, 95th and 99th percentile in milliseconds; None without counts."""

    p50: float | None
    p95: float | None
    p99: float | None


def percentiles(counted: Mapping[int, int]) -> Percentiles:
    return Percentiles(*(quantile(counted, part) for part in (0.5, 0.95, 0.99)))


def first_step(now_ms: int, form: SpanForm) -> int:
    """The number since 1970 of the first step of a chart that ends now."""
    return now_ms // 1000 // form.step_seconds - form.steps + 1


def by_step(slices: Slices, form: SpanForm) -> dict[int, dict[str, TaskLatency]]:
    """The counts of each step by task."""
    found: dict[int, dict[str, TaskLatency]] = {}
    for number, named in slices.items():
        tasks = found.setdefault(number // form.units, {})
        for name, n in named.items():
            kind, _, rest = name.partition(":")
            bits, _, task = rest.partition(":")
            at = whole_number(bits)
            if kind not in ("d", "v") or at is None or at >= SUM_INDEX:
                continue
            of_task = tasks.setdefault(task, TaskLatency())
            (of_task.waits if kind == "v" else of_task.runs)[at] += n
    return found


def together(some: Iterable[TaskLatency]) -> TaskLatency:
    """The sum of some."""
    summed = TaskLatency()
    for one in some:
        summed.add(one)
    return summed
