"""Minutes: what was enqueued, completed, failed and retried in each minute of the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.store.many import scripts
from qbull.store.partition import Partition

DAY = 1440
AT_ONCE = 240
"""Minutes in one call."""
COUNTED = ("enqueued", "completed", "failed", "retried", "cancelled")
WIDTH = 1 + len(COUNTED)
MINUTE = 60_000
FRESH = 5
"""Minutes that are always read."""
OVER = 3
"""Minutes after which one is over on the clocks of all servers."""


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
    now = 0
    for start in range(0, many, AT_ONCE):
        some = min(AT_ONCE, many - start)
        calls = [(partition.base, many - 1 - start, some, *COUNTED) for partition in partitions]
        for this, *flat in await scripts(partitions[0].server, "minutes", calls):
            now = max(now, this)
            for at in range(0, len(flat), WIDTH):
                minute, *row = flat[at : at + WIDTH]
                before = counts.get(minute)
                counts[minute] = row if before is None else [a + b for a, b in zip(before, row, strict=True)]
    return [Minute(minute * 60_000, *counts.get(minute, ())) for minute in range(now - many + 1, now + 1)]


class Memory:
    """The minutes of queues. Those that are over do not change, so they are read once."""

    def __init__(self) -> None:
        self._over: dict[str, dict[int, Minute]] = {}

    async def last(self, queue: str, partitions: Sequence[Partition], many: int) -> list[Minute]:
        """The same as `minutes`."""
        found = await minutes(partitions, min(many, FRESH))
        known = self._over.get(queue, {})
        last = found[-1].at_ms
        wanted = range(last - (many - 1) * MINUTE, found[0].at_ms, MINUTE)
        if any(at_ms not in known for at_ms in wanted):
            found = await minutes(partitions, many)
            last = found[-1].at_ms
        over = {one.at_ms: one for one in found if one.at_ms <= last - OVER * MINUTE}
        oldest = last - DAY * MINUTE
        self._over[queue] = known = {at: one for at, one in (known | over).items() if at >= oldest}
        return [known[at_ms] for at_ms in wanted if at_ms < found[0].at_ms] + found
