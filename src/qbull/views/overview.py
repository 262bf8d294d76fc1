"""Shapes of the overview: all queues together."""

from __future__ import annotations

from qbull.views.errors import AcknowledgedView
from qbull.views.health import VerdictView
from qbull.views.jobs import FailureGroupView
from qbull.views.queues import MinuteView
from qbull.views.shape import AnswerShape, Shape


class FailingView(Shape, kw_only=True):
    """Jobs of a queue that failed permanently in the last hour with the same error.

    `cascades` is the number of jobs of flows that failed because one of these did; they are in no group.
    `acknowledged`: somebody knows of it; unless it has returned, it comes last.
    """

    queue: str
    group: FailureGroupView
    cascades: int
    acknowledged: AcknowledgedView | None = None


class WaitingView(Shape, kw_only=True):
    """Time from runnable to start over the last minutes: median and 95th percentile of all queues together,
    in milliseconds, and the queue with the longest 95th percentile.
    """

    p50_ms: float | None
    p95_ms: float | None
    slowest_queue: str | None
    slowest_p95_ms: float | None


class Overview(AnswerShape, kw_only=True):
    """All queues together: `minutes` from the oldest on; `failing` from the most frequent on; `verdict` is
    the same as the health check, with the workers that are concerned; `cascades` is how many jobs failed in
    the last hour because another job of their flow did.
    """

    verdict: VerdictView
    minutes: list[MinuteView]
    wait: WaitingView
    cascades: int
    failing: list[FailingView]
