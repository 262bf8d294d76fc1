"""Drain status: the jobs that are left in old partitions after the partition count of a queue has changed.

The server keeps these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import fields

from qbull.config import QueueSettings
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


class DrainStatus(msgspec.Struct, frozen=True):
    """The contents of a partition, in the order of the script's answer."""

    mark: bytes = b""
    entries: int = 0
    behind: int = 0
    delayed: int = 0
    lanes: int = 0
    held: int = 0
    jobs: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    schedules: int = 0
    reports: int = 0
    outgoing: int = 0
    totals: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Jobs that have not finished."""
        return self.jobs - self.completed - self.failed - self.cancelled

    @property
    def worked_off(self) -> bool:
        """Whether nothing in it will ever run again or makes other jobs wait."""
        return not (
            self.entries or self.behind or self.delayed or self.lanes or self.schedules or self.outgoing
        )

    @property
    def halted(self) -> bool:
        """Whether only halted lanes are left: a dead letter holds them."""
        return self.lanes > 0 and not (self.entries or self.delayed or self.held)


@dataclass(frozen=True, slots=True)
class Repartitioning:
    """The progress of a change of the partition count."""

    partitions: int
    """The current partition count, or the coming one if the change was interrupted."""
    before: tuple[int, ...]
    """The earlier partition counts under which the unfinished jobs were enqueued."""
    jobs: int
    """The number of these jobs, in old partitions."""
    keys: int
    """Keys with jobs in old partitions. Later jobs of these keys wait in the new ones."""
    halted: int
    """The keys among them that are halted by a dead letter, until someone deals with it."""


async def drain_status(partition: Partition) -> DrainStatus:
    return read_drain_status(await partition.server.script("drain_status", partition.base))


async def drain_statuses(partitions: Sequence[Partition]) -> list[DrainStatus]:
    """The status of each of these partitions."""
    if not partitions:
        return []
    calls = [(partition.base,) for partition in partitions]
    return [
        read_drain_status(reply) for reply in await run_scripts(partitions[0].server, "drain_status", calls)
    ]


def read_drain_status(reply: list[Any]) -> DrainStatus:
    """The status in an answer of lua/drain_status.lua."""
    mark, *numbers, flat = reply
    totals = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
    names = [one.name for one in fields(DrainStatus)][1:-1]
    return DrainStatus(mark=mark, totals=totals, **dict(zip(names, numbers, strict=True)))


@idempotent
async def repartitioning_status(store: Store, settings: QueueSettings) -> Repartitioning | None:
    """The progress of a change of the partition count; None if none is under way."""
    layout = await store.layout(settings)
    if layout.settled:
        return None
    old = [number for older in layout.draining for number in older.numbers]
    left = await drain_statuses([store.partition(settings, number) for number in old])
    return Repartitioning(
        partitions=layout.coming or layout.partitions,
        before=tuple(older.partitions for older in layout.draining),
        jobs=sum(tally.unfinished for tally in left),
        keys=sum(tally.lanes for tally in left),
        halted=sum(tally.lanes for tally in left if tally.halted),
    )
