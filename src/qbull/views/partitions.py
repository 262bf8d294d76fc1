"""Shapes of partitions: their readers, jobs and lanes, and the progress of a repartitioning."""

from __future__ import annotations

from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from qbull.core.job_info import JobInfo
from qbull.core.layout import MAX_PARTITIONS
from qbull.store.read.partition_report import PartitionReport, PartitionStatus
from qbull.views.shape import AnswerShape, Instant, Shape, Timestamp, instant, view_of


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


class ConfigWarningView(Shape, kw_only=True):
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
    warnings: list[ConfigWarningView]

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
