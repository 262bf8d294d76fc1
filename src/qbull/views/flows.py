"""Shapes of flows."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

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


class FlowsQuery(Shape, kw_only=True):
    """Without parameters: the running and the recently finished flows. With one: a search of all flows that
    are kept, a bounded time for each answer. `find` are words in tasks, ids and shown arguments; `cursor` is
    the `next` of the answer before.
    """

    find: Annotated[str, Meta(max_length=200)] | None = None
    state: FlowState | None = None
    cursor: Annotated[str, Meta(max_length=400)] | None = None


class FlowsView(AnswerShape, kw_only=True):
    """Flows, the newest first. A search says how many jobs it has read, of how many; `next` continues it, and
    is null if all were read. A flow may come again in a later answer.
    """

    flows: list[ShownFlowView]
    scanned: int = 0
    total: int = 0
    next: str | None = None


class FlowChangeView(AnswerShape, kw_only=True):
    """A change of a flow. `jobs` is the number of jobs that it concerned."""

    message: str
    flow: str
    jobs: int
