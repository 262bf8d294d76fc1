"""Shapes of queues: counts, settings, minutes, partitions, keys, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from qbull.config import OnFailed, Order
from qbull.core.health import HealthCode
from qbull.core.job_info import JobInfo
from qbull.core.layout import MAX_PARTITIONS
from qbull.core.record import to_datetime
from qbull.core.retry import Backoff
from qbull.store.read.inspect import Counts
from qbull.store.read.minutes import MinuteCounts
from qbull.store.read.partition_report import PartitionReport, PartitionStatus
from qbull.store.verbs.live_settings import LIVE_SETTING_TYPES, LiveSettingChange, LiveSettings
from qbull.views.shape import (
    AnswerShape,
    DurationSeconds,
    Instant,
    Shape,
    Timestamp,
    instant,
    view_of,
)


class StatsView(Shape, kw_only=True):
    """Counts of a queue. `paused` is the number of waiting jobs that a pause holds back."""

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
            paused=counts.waiting if counts.paused else 0,
            is_paused=counts.paused,
            oldest_waiting_at=instant(counts.oldest_waiting_ms),
        )


class LiveStatsView(StatsView, kw_only=True):
    """Counts in the stream of events, with jobs per second since the last event."""

    per_second: dict[str, float]


class QueueStatsView(StatsView, kw_only=True):
    """The counts of one queue."""

    success: bool = True
    timestamp: Timestamp


class AllStatsView(AnswerShape, kw_only=True):
    """The counts of all queues by name."""

    queues: dict[str, StatsView]


class TaskView(Shape, kw_only=True):
    """A task. `arguments` is a JSON Schema, if the task's code is in this process."""

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


class IllView(Shape, kw_only=True):
    """A health problem: `text` for people, `code` with its `values` for programs. A problem that is not
    serious waits for a person and blocks nothing else.
    """

    code: HealthCode
    serious: bool
    queue: str | None
    text: str
    values: dict[str, int]


class HealthView(Shape, kw_only=True):
    """The health of all queues. `message` sums up the `problems`. The status is unhealthy if one of them is
    serious.
    """

    status: Literal["healthy", "unhealthy"]
    message: str
    problems: list[IllView]
    details: dict[str, StatsView]
    timestamp: Timestamp


class AliveView(Shape, kw_only=True):
    """The state of the API for load balancers."""

    status: Literal["ok", "away"]
    message: str


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


class RateBody(Shape, kw_only=True):
    """At most `count` starts in any `per` seconds."""

    count: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    per: Annotated[float, Meta(ge=0.1, le=2_678_400)] = 1.0


class RetryBody(Shape, kw_only=True):
    """A retry policy: explicit `delays`, or `attempts` with a `backoff` from `delay` up to `maxDelay`. In
    seconds.
    """

    delays: list[DurationSeconds] | None = None
    attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    backoff: Backoff | None = None
    delay: DurationSeconds | None = None
    max_delay: DurationSeconds | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None


class NewSettingsBody(Shape, kw_only=True):
    """Settings to change for all workers; others stay. null removes a limit."""

    concurrency: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    max_active: Annotated[int, Meta(ge=1, le=1000000000)] | UnsetType | None = UNSET
    rate: RateBody | UnsetType | None = UNSET
    retry: RetryBody | UnsetType = UNSET


class ResetQuery(Shape, kw_only=True):
    """The setting to reset to its value in the code; all settings if none is named."""

    setting: Literal["concurrency", "max_active", "rate", "retry"] | None = None


class ChangedSettingView(Shape, kw_only=True):
    value: Any
    by: str
    at: Instant


class SettingChangeView(Shape, kw_only=True):
    """A change of a setting. null stands for the value in the code."""

    at: Instant
    by: str
    setting: str
    before: Any
    after: Any


class SettingsShape(Shape, kw_only=True):
    """The settings in force for a queue, which of them were changed at run time, and the last changes, newest
    first.
    """

    queue: str
    paused: bool
    settings: dict[str, Any]
    changed: dict[str, ChangedSettingView]
    history: list[SettingChangeView]

    @classmethod
    def of(cls, queue: str, live: LiveSettings, changes: Sequence[LiveSettingChange], **more: Any) -> Self:
        """The settings of a queue. Rates and retries become plain JSON values."""
        return view_of(
            cls,
            live,
            queue=queue,
            settings={name: msgspec.to_builtins(getattr(live.settings, name)) for name in LIVE_SETTING_TYPES},
            changed={
                name: view_of(ChangedSettingView, one, value=msgspec.to_builtins(one.value))
                for name, one in live.changed.items()
            },
            history=[
                view_of(
                    SettingChangeView,
                    one,
                    before=msgspec.to_builtins(one.before),
                    after=msgspec.to_builtins(one.after),
                )
                for one in changes
            ],
            **more,
        )


class SettingsView(SettingsShape, kw_only=True):
    """The settings in force for a queue, which of them were changed at run time, and the last changes, newest
    first.
    """

    success: bool = True
    timestamp: Timestamp


class ReaderView(Shape, kw_only=True):
    """A worker that reads a partition."""

    worker: str
    host: str
    sharing: str
    since: Instant | None


class LeaseView(Shape, kw_only=True):
    """With sharing "leased": the worker that has the partition for itself."""

    owner: str
    epoch: int
    since: Instant | None


class PartitionView(Shape, kw_only=True):
    """A partition is `draining` if the queue had it before the number of its partitions was changed."""

    partition: int
    draining: bool
    readers: list[ReaderView]
    lease: LeaseView | None
    waiting: int
    in_lanes: int
    active: int
    delayed: int
    failed: int
    oldest_waiting_at: Instant | None

    @classmethod
    def of(cls, status: PartitionStatus) -> PartitionView:
        lease = status.lease
        return view_of(
            cls,
            status.counts,
            partition=status.number,
            draining=status.draining,
            readers=[view_of(ReaderView, one, since=instant(one.since_ms)) for one in status.readers],
            lease=None if lease is None else view_of(LeaseView, lease, since=instant(lease.since_ms)),
            oldest_waiting_at=instant(status.counts.oldest_waiting_ms),
        )


class LongLaneView(Shape, kw_only=True):
    """A key with many jobs in its lane; null is the one lane of a whole partition."""

    partition: int
    key: str | None
    waiting: int
    oldest_waiting_at: Instant | None


class HaltedLaneView(Shape, kw_only=True):
    """A key whose jobs wait until somebody has dealt with the one that failed."""

    partition: int
    key: str | None
    waiting: int
    job: str = msgspec.field(name="jobId")
    since: Instant | None


class MisfitView(Shape, kw_only=True):
    """Settings of workers that do not fit together, and the remedy."""

    kind: str
    serious: bool
    fact: str
    next_step: str = msgspec.field(name="next")
    partitions: list[int]
    workers: list[str]


class PartitionReportShape(Shape, kw_only=True):
    """The readers of each partition, the jobs that wait there, and the keys that hold them up."""

    queue: str
    partitions: list[PartitionView]
    long_lanes: list[LongLaneView]
    halted_lanes: list[HaltedLaneView]
    misfits: list[MisfitView]

    @classmethod
    def of(cls, report: PartitionReport, **more: Any) -> Self:
        """A partition report as JSON."""
        return view_of(
            cls,
            report,
            partitions=[PartitionView.of(one) for one in report.partitions],
            long_lanes=[
                view_of(LongLaneView, lane, oldest_waiting_at=instant(lane.oldest_ms)) for lane in report.hot
            ],
            halted_lanes=[
                view_of(HaltedLaneView, lane, since=instant(lane.since_ms)) for lane in report.halted
            ],
            **more,
        )


class NewPartitionsBody(Shape, kw_only=True):
    """The new number of partitions. No job is lost, and the jobs of a key keep their order."""

    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]


class RepartitioningView(Shape, kw_only=True):
    """The rest of a repartitioning: `jobs` in old partitions, `keys` whose later jobs wait for those,
    `halted` keys that wait for a person. `before` are the earlier numbers of partitions.
    """

    partitions: int
    before: list[int]
    jobs: int
    keys: int
    halted: int


class PartitionsView(PartitionReportShape, kw_only=True):
    """The readers of each partition, the jobs that wait there, and the keys that hold them up.
    `repartitioning` is null if no change of the number of partitions is under way.
    """

    success: bool = True
    timestamp: Timestamp
    repartitioning: RepartitioningView | None


class KeyQuery(Shape, kw_only=True):
    """Maximum number of waiting jobs to show."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class KeyView(AnswerShape, kw_only=True):
    """The lane of one key. `holder` is the job that the others wait for. `halted`: that job has failed
    permanently; retry or remove it to continue.
    """

    queue: str
    key: str
    partition: int
    holder: JobInfo | None
    halted: bool
    waiting: int
    jobs: list[JobInfo]
