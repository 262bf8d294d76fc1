"""Shapes of flows."""

from __future__ import annotations

from typing import Literal

from qbull.core.record import State
from qbull.views.shape import AnswerShape, Instant, Shape

FlowJobState = Literal[State, "removed"]
FlowState = Literal["running", "completed", "rescued", "failed", "cancelled"]


class FlowStepView(Shape, kw_only=True):
    """One job of a flow. `waitsFor` are the places of those before it in the list of steps, `level` how many of them are behind each other.

    `kept` is false where no more is known of it than how it ended; `blocked` is true while it waits for others, `fallback` is run only where
    these did not come to their end.
    """

    queue: str
    id: str
    task: str
    state: FlowJobState
    level: int
    waits_for: list[int]
    kept: bool
    blocked: bool
    fallback: bool
    error: str | None
    started_at: Instant | None
    finished_at: Instant | None
    duration_ms: float | None


class FlowView(AnswerShape, kw_only=True):
    """The jobs of a flow, those before which nothing comes first; none where the job is in no flow. `more`: there are more than are shown."""

    flow: str | None
    steps: list[FlowStepView]
    more: bool


class ShownFlowView(Shape, kw_only=True):
    """A flow: the job that it ends with, and how its jobs are. It is rescued where a fallback stood in for that. `createdAt` is when the oldest of these
    was enqueued.
    """

    flow: str
    queue: str
    id: str
    task: str
    state: FlowState
    steps: list[FlowStepView]
    more: bool
    created_at: Instant


class FlowsView(AnswerShape, kw_only=True):
    """Flows that are under way, and those that ended lately; the newest first."""

    flows: list[ShownFlowView]
