"""Shapes of alerts."""

from __future__ import annotations

from qbull.core.alerts import DestinationKind
from qbull.core.problems import ProblemKind
from qbull.core.record import State
from qbull.views.shape import AnswerShape, Instant, Shape


class AlertDestinationView(Shape, kw_only=True):
    """An alert destination. Its address is a secret."""

    kind: DestinationKind
    host: str


class AlertProblemView(Shape, kw_only=True):
    """An open problem. `job` is the newest job concerned, `said` the number of messages sent, `over` whether
    it is resolved.
    """

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
    """A message and its delivery state; `id` is the id of its job in the queue qbull.alerts."""

    id: str
    at: Instant
    to: AlertDestinationView
    text: str
    state: State
    error: str | None


class AlertsView(AnswerShape, kw_only=True):
    """Open problems, destinations and the last messages. `asking` are the queues that raise alerts;
    `silenced`: nothing is sent for now.
    """

    to: list[AlertDestinationView]
    asking: list[str]
    silenced: bool
    problems: list[AlertProblemView]
    messages: list[AlertMessageView]


class TriedView(Shape, kw_only=True):
    """The outcome of a test message at one destination; `error` is null if it arrived."""

    to: AlertDestinationView
    error: str | None


class TriedAlertsView(AnswerShape, kw_only=True):
    """The outcomes of the test messages, one for each destination."""

    tried: list[TriedView]
