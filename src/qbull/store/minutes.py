"""Minutes: what was enqueued, completed, failed and retried in each minute of the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.store.partition import Partition

DAY = 1440
AT_ONCE = 240
"""Minutes in one call."""
COUNTED = ("enqueued", "completed", "failed", "retried", "cancelled")


class Minute(NamedTuple):
    """`at_ms` is its begin, on the server's clock."""

    at_ms: int
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0


async def minutes(partitions: Sequence[Partition], many: int) -> list[Minute]:
    """The last minutes, the oldest first; the last of them is the one that is not over."""
    counts: dict[int, list[int]] = {}
    for partition in partitions:
        for start in range(0, many, AT_ONCE):
            some = min(AT_ONCE, many - start)
            first, *flat = await partition.server.script(
                "minutes", partition.base, many - 1 - start, some, *COUNTED
            )
            for n in range(some):
                row = flat[n * len(COUNTED) : (n + 1) * len(COUNTED)]
                before = counts.get(first + n, [0] * len(COUNTED))
                counts[first + n] = [a + b for a, b in zip(before, row, strict=True)]
    return [Minute(minute * 60_000, *counts[minute]) for minute in sorted(counts)[-many:]]
