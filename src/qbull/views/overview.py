"""Shapes of the overview: all queues together."""

from __future__ import annotations

from qbull.views.jobs import FailureGroupView
from qbull.views.queues import MinuteView
from qbull.views.shape import AnswerShape, Shape


class FailingView(Shape, kw_only=True):
    """Jobs of a queue that failed for good in the last hour, for the same reason."""

    queue: str
    group: FailureGroupView


class WaitingView(Shape, kw_only=True):
    """How long jobs that ran in the last minutes could have run before they did: half of them, and 95 of 100, at most so many milliseconds."""

    p50_ms: float | None
    p95_ms: float | None


class Overview(AnswerShape, kw_only=True):
    """`minutes` are those of all queues together, the oldest first; `failing` begins with the most frequent."""

    minutes: list[MinuteView]
    wait: WaitingView
    failing: list[FailingView]
