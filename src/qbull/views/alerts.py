"""Shapes of alerts."""

from __future__ import annotations

from qbull.core.alerts import DestinationKind
from qbull.core.problems import ProblemKind
from qbull.core.record import State
from qbull.views.shape import AnswerShape, Instant, Shape


class AlertPlaceView(Shape, kw_only=True):
    """Where alerts go to. The address itself is a secret."""

    kind: DestinationKind
    host: str


class AlertProblemView(Shape, kw_only=True):
    """Something that is wrong, in words and one by one. `job` is the newest of them; `said` is how often people were told, `over` that it is right again."""

    kind: ProblemKind
    text: str
    queue: str | None
    task: str | None
    schedule: str | None
    job: str | None
    reason: str | None
    count: int
    since: Instant
    said: int
    said_at: Instant | None
    over: bool


class AlertMessageView(Shape, kw_only=True):
    """A message, and whether it arrived; `id` is its job's, in the queue qbull.alerts."""

    id: str
    at: Instant
    to: AlertPlaceView
    text: str
    state: State
    error: str | None


class AlertsView(AnswerShape, kw_only=True):
    """What is wrong now, where that is said, and the last messages. `asking` are the queues that raise alerts; `silenced`: nothing is sent for now."""

    to: list[AlertPlaceView]
    asking: list[str]
    silenced: bool
    problems: list[AlertProblemView]
    messages: list[AlertMessageView]


class TriedView(Shape, kw_only=True):
    """What came of a test message at one place; `error` is null where it arrived."""

    to: AlertPlaceView
    error: str | None


class TriedAlertsView(AnswerShape, kw_only=True):
    """One for each place."""

    tried: list[TriedView]
