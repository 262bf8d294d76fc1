"""Minutes: what was enqueued, completed, failed and retried in each minute of the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.store.connection.fan_out import scripts
from qbull.store.verbs.partition import Partition

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
    rows: dict[tuple[str, int], list[int]] = {}
    """By partition: servers whose clocks differ by a minute are asked for one of them twice."""
    now = last = 0
    for start in range(0, many, AT_ONCE):
        calls = [(each.base, last, min(AT_ONCE, many - start), *COUNTED) for each in partitions]
        found = await scripts(partitions[0].server, "minutes", calls)
        now = now or max(this for this, *_ in found)
        last = now - start - AT_ONCE
        for (base, *_), (_, *flat) in zip(calls, found, strict=True):
            for at in range(0, len(flat), WIDTH):
                rows[str(base), flat[at]] = flat[at + 1 : at + WIDTH]
    counts: dict[int, list[int]] = {}
    for (_, minute), row in rows.items():
        counts[minute] = [a + b for a, b in zip(counts.get(minute, [0] * len(row)), row, strict=True)]
    return [Minute(minute * MINUTE, *counts.get(minute, ())) for minute in range(now - many + 1, now + 1)]


class Memory:
    """The minutes of queues. Those that are over do not change, so they are read once."""

    def __init__(self) -> None:
        self._over: dict[str, dict[int, Minute]] = {}

    async def last(self, queue: str, partitions: Sequence[Partition], many: int) -> list[Minute]:
        """The same as `minutes`."""
        found = await minutes(partitions, min(many, FRESH))
        known = self._over.get(queue, {})
        older = range(found[-1].at_ms - (many - 1) * MINUTE, found[0].at_ms, MINUTE)
        if any(at_ms not in known for at_ms in older):
            found, older = await minutes(partitions, many), range(0)
        last = found[-1].at_ms
        over = {one.at_ms: one for one in found if one.at_ms <= last - OVER * MINUTE}
        oldest = last - DAY * MINUTE
        self._over[queue] = {at: one for at, one in (known | over).items() if at >= oldest}
        return [known[at_ms] for at_ms in older] + found
