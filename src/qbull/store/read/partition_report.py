"""Partition report: a queue partition by partition. Which workers read each, what waits there, and which keys
block it.

`qbull partitions` and the dashboard show it. The cost does not depend on the number of jobs: only a bounded
number of lanes and dead letters is read, so a short lane may be missed if there are very many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qbull.config import QueueSettings
from qbull.core.config_warnings import ConfigWarning, config_warnings
from qbull.core.route import PARTITION_LANE
from qbull.store.connection.fan_out import run_scripts
from qbull.store.read.inspect import Counts, counts, find
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.workers import RegisteredWorker, settings_digest, worker_declarations

LANE_SAMPLE_SIZE = 64
"""Lanes of a partition that are sampled.

A lane with a tenth of all jobs is then missed once in 800 reports.
"""
MAX_READ_DEAD_LETTERS = 50
"""Entries of a partition's dead letters that are read."""
MAX_SHOWN_LANES = 10
"""Lanes of the whole queue that are listed, of each kind."""


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """A worker that reads a partition. `since_ms` is the server's time; None if it was not reported."""

    worker: str
    host: str
    sharing: str
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class PartitionLease:
    """The exclusive lease of a partition with sharing "leased". The epoch rises with every new owner."""

    owner: str
    epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. A draining one was in use before the partition count of the queue changed."""

    number: int
    readers: list[PartitionReader]
    lease: PartitionLease | None
    counts: Counts
    draining: bool = False


@dataclass(frozen=True, slots=True)
class LongLane:
    """A key with jobs behind each other. `key` is None for the only lane of a whole partition."""

    partition: int
    key: str | None
    waiting: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class HaltedLane:
    """A key whose jobs wait until someone deals with the one that failed."""

    partition: int
    key: str | None
    waiting: int
    job: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    queue: str
    partitions: list[PartitionStatus] = field(default_factory=list)
    hot: list[LongLane] = field(default_factory=list)
    halted: list[HaltedLane] = field(default_factory=list)
    warnings: list[ConfigWarning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _SampledLane:
    partition: Partition
    digest: bytes
    waiting: int
    job: str


@idempotent
async def partition_report(store: Store, settings: QueueSettings) -> PartitionReport:
    """Report on all partitions. `settings` are those on the server."""
    members, layout = await store.workers(), await store.layout(settings)
    there = worker_declarations(members, settings.name, layout.current)
    found = PartitionReport(
        settings.name, warnings=config_warnings(layout.partitions, settings_digest(settings), there)
    )
    long: list[_SampledLane] = []
    halted: list[_SampledLane] = []
    numbers = [number for generation in reversed(layout.busy) for number in generation.numbers]
    partitions = [store.partition(settings, number) for number in numbers]
    readers = _readers(members, settings.name)
    for partition, looked, counted in zip(
        partitions, await _sample_lanes(partitions, settings), await counts(partitions), strict=True
    ):
        lease, some_long, some_halted = looked
        long += some_long
        halted += some_halted
        found.partitions.append(
            PartitionStatus(
                partition.shown,
                readers.get(partition.number, []),
                lease,
                counted,
                draining=partition.number not in layout.current.numbers,
            )
        )
    for lane in sorted(long, key=lambda lane: -lane.waiting)[:MAX_SHOWN_LANES]:
        found.hot.append(await _long_lane(lane))
    for lane in sorted(halted, key=lambda lane: -lane.waiting)[:MAX_SHOWN_LANES]:
        if (blocked := await _halted_lane(lane)) is not None:
            found.halted.append(blocked)
    return found


async def _sample_lanes(
    partitions: Sequence[Partition], settings: QueueSettings
) -> list[tuple[PartitionLease | None, list[_SampledLane], list[_SampledLane]]]:
    letters = MAX_READ_DEAD_LETTERS if settings.on_failed == "halt" else 0
    calls = [(partition.base, LANE_SAMPLE_SIZE, MAX_SHOWN_LANES, letters) for partition in partitions]
    replies = await run_scripts(partitions[0].server, "partition_report", calls)
    return [
        (
            _lease(dict(zip(lease[::2], lease[1::2], strict=True))),
            [_SampledLane(partition, *row) for row in _rows(hot, 3)],
            [_SampledLane(partition, *row) for row in _rows(halted, 4)],
        )
        for partition, (lease, hot, halted) in zip(partitions, replies, strict=True)
    ]


def _rows(flat: list[bytes], width: int) -> list[tuple[bytes, int, str]]:
    return [(flat[at], int(flat[at + 1]), flat[at + 2].decode()) for at in range(0, len(flat), width)]


def _lease(fields: Mapping[bytes, bytes]) -> PartitionLease | None:
    if b"owner" not in fields:
        return None
    return PartitionLease(fields[b"owner"].decode(), int(fields[b"epoch"]), int(float(fields[b"since"])))


def _readers(members: Mapping[str, RegisteredWorker], queue: str) -> dict[int, list[PartitionReader]]:
    """The readers of each partition of a queue, for partitions that have any."""
    found: dict[int, list[PartitionReader]] = {}
    for id, member in sorted(members.items()):
        serving = member.queues.get(queue)
        if serving is None:
            continue
        for number in serving.partitions:
            reading = PartitionReader(id, member.host, serving.sharing, serving.since.get(number))
            found.setdefault(number, []).append(reading)
    return found


async def _long_lane(lane: _SampledLane) -> LongLane:
    head = await find(lane.partition, lane.job)
    key = None if head is None or lane.digest == PARTITION_LANE else head.body().key
    oldest = None if head is None else head.created_ms() or None
    return LongLane(lane.partition.shown, key, lane.waiting, oldest)


async def _halted_lane(lane: _SampledLane) -> HaltedLane | None:
    """The halted lane with its key; None if someone has dealt with it meanwhile."""
    letter = await find(lane.partition, lane.job)
    if letter is None or letter.finished_ms is None:
        return None
    key = None if lane.digest == PARTITION_LANE else letter.body().key
    return HaltedLane(lane.partition.shown, key, lane.waiting, lane.job, letter.finished_ms)
