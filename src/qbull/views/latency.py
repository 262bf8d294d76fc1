"""Shapes of latency: wait and run times as percentiles, by time, queue and task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from qbull.core.latency import LatencySpan, Percentiles, TaskLatency, percentiles
from qbull.views.shape import AnswerShape, Instant, Moment, ResourceName, Shape

HEAT_FIRST_BITS, HEAT_LAST_BITS = 10, 36
"""The rows of a heat map: up to 1 ms, 2 ms, 4 ms … 19 hours."""


class SpanQuery(Shape, kw_only=True):
    """How far back, from now."""

    span: LatencySpan = "1h"


class QueueLatencyQuery(SpanQuery, kw_only=True):
    """The period, and a task; without one all tasks together.

    `from` and `to` choose a period in place of `span`, in the finest steps that are kept: minutes of the last
    day, hours of 30 days. They are times with a zone, dates in UTC, or durations before now, such as 2h.
    """

    start: Moment | None = msgspec.field(default=None, name="from")
    end: Moment | None = msgspec.field(default=None, name="to")
    task: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class MarksQuery(SpanQuery, kw_only=True):
    """The period, and a queue; without one all queues."""

    queue: ResourceName | None = None


class PercentilesView(Shape, kw_only=True):
    """Median, 95th and 99th percentile in milliseconds; null without jobs."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, counted: Mapping[int, int]) -> PercentilesView:
        found: Percentiles = percentiles(counted)
        return cls(**{name: None if ms is None else round(ms, 3) for name, ms in found._asdict().items()})


class LatencyView(Shape, kw_only=True):
    """The runs of a period, how long these jobs waited for their start, and how long they ran."""

    runs: int
    wait: PercentilesView
    run: PercentilesView

    @classmethod
    def of(cls, counted: TaskLatency) -> LatencyView:
        return cls(
            runs=counted.runs.total(),
            wait=PercentilesView.of(counted.waits),
            run=PercentilesView.of(counted.runs),
        )


class LatencyStepView(Shape, kw_only=True):
    """One step of a chart, which starts at `at`.

    `waits` and `durations` are rows of a heat map: the number of jobs by time, up to 1 ms, 2 ms, 4 ms …;
    without trailing zeros.
    """

    at: Instant
    latency: LatencyView
    waits: list[int]
    durations: list[int]


class TaskLatencyView(Shape, kw_only=True):
    """The latency of one task over the whole period."""

    task: str
    latency: LatencyView


class QueueLatencyView(AnswerShape, kw_only=True):
    """The latency of a queue. Steps without runs are left out; the last one is not over yet.

    `span` is that of the request, also if `from` and `to` chose another period.
    """

    queue: str
    span: LatencySpan
    step_seconds: int
    total: LatencyView
    steps: list[LatencyStepView]
    tasks: list[TaskLatencyView]


class QueueTotalView(Shape, kw_only=True):
    """The latency of one queue over the whole period."""

    queue: str
    latency: LatencyView


class AllLatencyView(AnswerShape, kw_only=True):
    """The latency of each queue over the whole period."""

    span: LatencySpan
    queues: list[QueueTotalView]


class MarkView(Shape, kw_only=True):
    """An event that may explain a change in a chart.

    `action` is that of the audit log, or "workers started".
    """

    at: Instant
    action: str
    target: str
    count: int


class MarksView(AnswerShape, kw_only=True):
    """Events that may explain a change in a chart, the oldest first."""

    marks: list[MarkView]


def heat_row(counted: Mapping[int, int]) -> list[int]:
    """The counts of one column of a heat map."""
    row = [0] * (HEAT_LAST_BITS - HEAT_FIRST_BITS + 1)
    for bits, n in counted.items():
        row[min(max(bits, HEAT_FIRST_BITS), HEAT_LAST_BITS) - HEAT_FIRST_BITS] += n
    while row and not row[-1]:
        row.pop()
    return row
