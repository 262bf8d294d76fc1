"""Tally: what is left in partitions that are worked off since their number was changed.

Numbers that the server keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from qbull.config import QueueSettings
from qbull.store.connection.fan_out import run_scripts
from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """What is left in a partition, in the order in which the script gives it."""

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
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Jobs that are still to run."""
        return self.jobs - self.completed - self.failed - self.cancelled

    @property
    def worked_off(self) -> bool:
        """Nothing in it will ever run again, or keeps anything waiting."""
        return not (
            self.entries or self.behind or self.delayed or self.lanes or self.schedules or self.outgoing
        )

    @property
    def halted(self) -> bool:
        """Lanes are left that no job of it will end: a dead letter holds them."""
        return self.lanes > 0 and not (self.entries or self.delayed or self.held)


@dataclass(frozen=True, slots=True)
class Repartitioning:
    """What a change of the number of partitions has left to do."""

    partitions: int
    """The number that is in force; the one that is coming, where the change was cut off before it was."""
    before: tuple[int, ...]
    """The numbers that the queue had when jobs were enqueued that are still unfinished."""
    jobs: int
    """How many these are, in old partitions."""
    keys: int
    """Keys with jobs there, whose later jobs wait in the new partitions."""
    halted: int
    """Those of them that wait for a person: a dead letter halts them."""


async def drain_status(partition: Partition) -> DrainStatus:
    return _read_drain_status(await partition.server.script("drain_status", partition.base))


async def drain_statuses(partitions: Sequence[Partition]) -> list[DrainStatus]:
    """Of each of them."""
    if not partitions:
        return []
    calls = [(partition.base,) for partition in partitions]
    return [
        _read_drain_status(reply) for reply in await run_scripts(partitions[0].server, "drain_status", calls)
    ]


def _read_drain_status(reply: list[Any]) -> DrainStatus:
    mark, *numbers, flat = reply
    totals = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
    names = [one.name for one in fields(DrainStatus)][1:-1]
    return DrainStatus(mark=mark, totals=totals, **dict(zip(names, numbers, strict=True)))


@idempotent
async def repartitioning_status(store: Store, settings: QueueSettings) -> Repartitioning | None:
    """What a change of the number of partitions has left to do; None where none is under way."""
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
