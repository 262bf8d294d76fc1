"""Shapes of the steps of durable jobs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from qbull.core.recorded_steps import RecordedStep, StepState
from qbull.views.shape import AnswerShape, Instant, Shape, view_of


class CalledJobView(Shape, kw_only=True):
    """A job that a durable job has called."""

    queue: str
    id: str


class StepView(Shape, kw_only=True):
    """A recorded step. `until` is the end of a sleep, or the timeout of a wait; `called` is the job that a
    call has enqueued. `schema` is the JSON Schema of the signal that a wait has not got yet. `omitted`: the
    result was left out, because the answer would be too large.
    """

    number: int
    name: str
    state: StepState
    result: Any
    error: str | None
    started_at: Instant
    duration_ms: float
    attempts: int
    until: Instant | None
    called: CalledJobView | None
    schema: dict[str, Any] | None
    omitted: bool


class ForkBody(Shape, kw_only=True):
    """A fork. `step` is the number or the name of the first step that runs again; null: the first one that is
    not recorded. `payload` replaces the arguments, `results` the results of copied steps, by number or name.
    Of several forks with the same `id`, there is one job.
    """

    step: (
        Annotated[int, Meta(ge=1, le=1_000_000)] | Annotated[str, Meta(min_length=1, max_length=300)] | None
    ) = None
    payload: dict[str, Any] | None = None
    results: dict[str, Any] = msgspec.field(default_factory=dict)
    id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class StepsView(AnswerShape, kw_only=True):
    """The recorded steps of a durable job, in the order in which they ended."""

    queue: str
    job_id: str
    steps: list[StepView]


def step_view(step: RecordedStep) -> StepView:
    """A step as JSON shows it."""
    called = None if step.called is None else CalledJobView(**step.called)
    return view_of(StepView, step, duration_ms=round(step.duration * 1000, 3), called=called)
