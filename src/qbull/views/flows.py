"""Shapes of flows."""

from __future__ import annotations

from typing import Literal

from qbull.manage.flow_walk import FlowJobState
from qbull.views.shape import AnswerShape, Instant, Shape

FlowState = Literal["running", "completed", "rescued", "failed", "cancelled"]


class FlowStepView(Shape, kw_only=True):
    """One job of a flow. `waitsFor` are the indexes of its dependencies in the list of steps, `level` is its
    depth.

    `kept` is false if only the outcome of the job is known; `blocked` is true while it waits for others; a
    `fallback` runs only if its dependencies fail.
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
    """The jobs of a flow, roots first; empty if the job is in no flow. `more`: some jobs are not shown."""

    flow: str | None
    steps: list[FlowStepView]
    more: bool


class ShownFlowView(Shape, kw_only=True):
    """A flow: its last job, its state and its steps. It is "rescued" if a fallback ran in place of the last
    job. `createdAt` is the time at which the oldest step was enqueued, `finishedAt` that of its end.

    `first` is the task of the job that it starts with, and `about` a part of that job's arguments, so that
    people can tell flows apart. `counts` are its shown jobs by state.
    """

    flow: str
    queue: str
    id: str
    task: str
    state: FlowState
    steps: list[FlowStepView]
    more: bool
    created_at: Instant
    finished_at: Instant | None
    first: str
    about: str | None
    counts: dict[FlowJobState, int]


class FlowsView(AnswerShape, kw_only=True):
    """Running and recently finished flows, the newest first."""

    flows: list[ShownFlowView]


class FlowChangeView(AnswerShape, kw_only=True):
    """A change of a flow. `jobs` is the number of jobs that it concerned."""

    message: str
    flow: str
    jobs: int
