"""Shapes of queues: counts, tasks, minutes, health."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from qbull.config import OnFailed, Order
from qbull.core.record import to_datetime
from qbull.store.read.inspect import Counts
from qbull.store.read.minutes import MinuteCounts
from qbull.views.shape import AnswerShape, Instant, Shape, Timestamp, instant, view_of


class StatsView(Shape, kw_only=True):
    """Counts of a queue. Its first six add up to `total`; cancelled jobs are counted apart.

    `paused` are the jobs that wait until somebody resumes the queue; `waiting` is 0 meanwhile.
    """

    name: str
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int
    paused: int
    total: int
    cancelled: int
    is_paused: bool
    oldest_waiting_at: Instant | None

    @classmethod
    def of(cls, name: str, counts: Counts) -> StatsView:
        """The counts of a queue."""
        return view_of(
            StatsView,
            counts,
            name=name,
            waiting=0 if counts.paused else counts.waiting,
            paused=counts.waiting if counts.paused else 0,
            is_paused=counts.paused,
            oldest_waiting_at=instant(counts.oldest_waiting_ms),
        )


class LiveStatsView(StatsView, kw_only=True):
    """Counts in the stream of events, with jobs per second since the last event. `cascades` of the failed
    jobs failed because another job of their flow did; counted are the newest 10,000 failed jobs. `has_lanes`:
    whether its jobs wait for others of their key or partition.
    """

    has_lanes: bool
    per_second: dict[str, float]
    cascades: int


class QueueStatsView(StatsView, kw_only=True):
    """The counts of one queue."""

    success: bool = True
    timestamp: Timestamp


class AllStatsView(AnswerShape, kw_only=True):
    """The counts of all queues by name."""

    queues: dict[str, StatsView]


class TaskView(Shape, kw_only=True):
    """A task. `arguments` is a JSON Schema, as the code here has it, else as a worker has published it."""

    name: str
    arguments: dict[str, Any] | None


class QueueView(AnswerShape, kw_only=True):
    """A queue: its settings, workers and tasks."""

    name: str
    stats: StatsView
    partitions: int
    order: Order | None
    on_failed: OnFailed
    lane: dict[str, Any] | None
    timeout: float | None
    keep: dict[str, Any]
    workers: int
    slots: int
    tasks: list[TaskView]
    declared_here: bool


class MinutesQuery(Shape, kw_only=True):
    """Number of minutes, up to a day."""

    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60


class MinuteView(Shape, kw_only=True):
    """Counts of one minute, which starts at `at`."""

    at: Instant
    enqueued: int
    completed: int
    failed: int
    retried: int
    cancelled: int

    @classmethod
    def of(cls, minute: MinuteCounts) -> MinuteView:
        return view_of(cls, minute, at=to_datetime(minute.at_ms))


class MinutesView(AnswerShape, kw_only=True):
    """Counts per minute, the oldest first; the last minute is not over yet."""

    queue: str
    minutes: list[MinuteView]
