"""Deliveries: entries of a ready stream that the server has handed to a worker, and the jobs in them."""

from __future__ import annotations

import asyncio
import math
from typing import NamedTuple

import msgspec

from qbull.core.record import lane_of
from qbull.store.verbs.outcomes import DeliveryState, JobPosition
from qbull.store.verbs.partition import Partition

TRAIN_MARK = b""
"""The name of the only field in the entry of a train."""
LANE_DIGEST_BYTES = 8
"""Length of a lane's digest."""
TRAIN_RECORDS_BATCH_SIZE = 600
"""Records per reply. A longer reply does not fit into a socket buffer and delays the next call."""
MAX_TRAIN_CALLS = 8
"""Calls in flight at a time, so that none of them waits for a settle that came between two of them."""


class Delivery(NamedTuple):
    """An entry of a ready stream, handed over to this worker: one job, or a train of one lane."""

    partition: Partition
    level: str
    entry: bytes
    fields: list[bytes]
    """Id and record of each job, flat, as the server sends them. Use `job()` to read them."""
    position: bytes
    """The priority level and the entry: together they name the delivery within its partition."""
    requested_at: float
    """When the worker asked for it, on this machine's monotonic clock."""
    lane: bytes = b""
    """The lane of a train; empty for a job that is alone in its entry."""
    settled_before: int = 0
    """How many jobs of the train were settled before it came here."""
    started_at: float = 0.0
    """When the first job of the train started here, on the clock of `time.perf_counter`; 0 before that."""
    is_repeated: bool = False
    """Whether the server had handed it to this worker before. A failover may have lost that it has run."""

    @property
    def is_in_lane(self) -> bool:
        """Whether its jobs have a lane. A program that knows no records may have written the entry."""
        return bool(self.lane) or (len(self.fields) == 2 and bool(lane_of(self.fields[1])))

    @property
    def state(self) -> DeliveryState:
        """Its state on the server before its first job is settled."""
        if self.lane:
            return DeliveryState(self.lane, self.position, self.job(0).position.state)
        return DeliveryState(b"", self.fields[0], b"r" + self.position)

    def after(self, number: int, started_at: float) -> Delivery:
        """The rest of a train after the job with this number is settled."""
        return self._replace(
            fields=self.fields[2 * number + 2 :],
            settled_before=self.settled_before + number + 1,
            started_at=started_at,
        )

    @property
    def job_count(self) -> int:
        """The number of jobs in it."""
        return len(self.fields) // 2

    def job(self, number: int) -> DeliveredJob:
        """The job with this number, counted from 0."""
        fields = self.fields
        return DeliveredJob(self, number, fields[2 * number], fields[2 * number + 1])

    def jobs(self) -> list[DeliveredJob]:
        """All its jobs, in order."""
        return [self.job(number) for number in range(self.job_count)]


class DeliveredJob(msgspec.Struct, eq=False, gc=False):
    """One job of a delivery. The worker carries it from the prefetch buffer to its outcome.

    It is a struct because one is made for every job that runs, and a struct is built without Python code.
    """

    delivery: Delivery
    number: int
    id: bytes
    record: bytes

    @property
    def position(self) -> JobPosition:
        """Its position on the server.

        Further jobs in an entry without a lane were written by another program.
        """
        delivery = self.delivery
        if not delivery.lane:
            return JobPosition(delivery.position, b"", 0, True)
        last = self.number == delivery.job_count - 1
        return JobPosition(delivery.position, delivery.lane, delivery.settled_before + self.number, last)


async def load_trains(deliveries: list[Delivery], *, again: bool = False) -> list[Delivery]:
    """Fetch the records of trains: the entry of a train contains only the ids of its jobs.

    `again`: the deliveries were made before, and some jobs of a train may be settled.
    """
    trains: dict[int, list[int]] = {}
    for index, delivery in enumerate(deliveries):
        if delivery.fields[0] == TRAIN_MARK:
            trains.setdefault(delivery.partition.number, []).append(index)
    for indexes in trains.values():
        partition = deliveries[indexes[0]].partition
        ids = [deliveries[index].fields[1][LANE_DIGEST_BYTES:].split(b"\n") for index in indexes]
        flat = [id for some in ids for id in some]
        step = max(TRAIN_RECORDS_BATCH_SIZE, math.ceil(len(flat) / MAX_TRAIN_CALLS))
        parts = [flat[start : start + step] for start in range(0, len(flat), step)]
        records = [record for some in await asyncio.gather(*map(partition.records, parts)) for record in some]
        first = 0
        for index, some in zip(indexes, ids, strict=True):
            its_records = records[first : first + len(some)]
            settled = await _settled_count(deliveries[index]) if again else 0
            deliveries[index] = _expand_train(deliveries[index], some, its_records, settled)
            first += len(some)
    return deliveries


async def _settled_count(delivery: Delivery) -> int:
    """How many jobs of a train are settled (lua/lib/train.lua). One of them may wait for its next attempt."""
    partition, lane = delivery.partition, delivery.fields[1][:LANE_DIGEST_BYTES]
    state: bytes | None = await partition.server.call("HGET", partition.base + "trains", lane)
    position, _, settled = (state or b"").partition(b" ")
    return int(settled) if settled and position == delivery.position else 0


def _expand_train(delivery: Delivery, ids: list[bytes], records: list[bytes], settled: int) -> Delivery:
    """Put ids and records together. Jobs without a record were settled earlier.

    If no job of an entry has a record, another program wrote it; it stays as it is.
    """
    before = next((n for n in range(settled, len(records)) if records[n]), None)
    if before is None:
        return delivery
    fields = [part for pair in zip(ids[before:], records[before:], strict=True) for part in pair]
    return delivery._replace(
        fields=fields, lane=delivery.fields[1][:LANE_DIGEST_BYTES], settled_before=before
    )
