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
MINUTES_KEPT_SECONDS = 86_400
HOURS_KEPT_SECONDS = 30 * 86_400
MAX_PERIOD_STEPS = 180
"""Steps of a period that somebody chose."""
STEP_UNITS = ((60, 1), (60, 5), (60, 10), (3600, 1), (3600, 6))
"""The steps of such periods, the finest first: the unit in seconds, and units in a step."""


class LatencyPeriod(NamedTuple):
    """A period of a chart: the number since 1970 of its first step, and the form of its steps."""

    first: int
    form: SpanForm


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


def recent_waits(slices: Slices, since_minute: int) -> Counter[int]:
    """The waits in the minutes from one on, of all tasks."""
    waits: Counter[int] = Counter()
    recent = {number: named for number, named in slices.items() if number >= since_minute}
    for tasks in by_step(recent, SPANS["1h"]).values():
        waits.update(together(tasks.values()).waits)
    return waits


def latest(now_ms: int, span: LatencySpan) -> LatencyPeriod:
    """The period of a span that ends with the step of now."""
    form = SPANS[span]
    return LatencyPeriod(now_ms // 1000 // form.step_seconds - form.steps + 1, form)


def period_between(start: int, end: int, now: int) -> LatencyPeriod:
    """A period in the finest steps that are kept for it and fit into a chart, from times in seconds."""
    end = min(end, now + 1)
    start = max(min(start, end - 1), now - HOURS_KEPT_SECONDS)
    for unit_seconds, units in STEP_UNITS:
        form = SpanForm(unit_seconds, units, 0)
        first = start // form.step_seconds
        steps = max(end - 1, start) // form.step_seconds - first + 1
        if steps <= MAX_PERIOD_STEPS and (unit_seconds > 60 or start >= now - MINUTES_KEPT_SECONDS):
            break
    return LatencyPeriod(first, form._replace(steps=steps))


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
