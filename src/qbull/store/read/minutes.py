"""Minutes: the jobs enqueued, completed, failed and retried in each minute of the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.store.connection.fan_out import run_scripts
from qbull.store.verbs.partition import Partition

RETENTION_MINUTES = 1440
MINUTES_BATCH_SIZE = 240
"""Minutes in one call."""
COUNTED_EVENTS = ("enqueued", "completed", "failed", "retried", "cancelled")
MINUTE_ROW_WIDTH = 1 + len(COUNTED_EVENTS)
MINUTE_MS = 60_000
FRESH_MINUTES = 5
"""Minutes that are always read."""
SETTLED_AFTER_MINUTES = 3
"""After so many minutes, a minute is over on the clocks of all servers."""


class MinuteCounts(NamedTuple):
    """The counts of one minute. `at_ms` is its start, on the server's clock."""

    at_ms: int
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0


async def last_minutes(partitions: Sequence[Partition], many: int) -> list[MinuteCounts]:
    """The last minutes, the oldest first. The last one is still running."""
    rows: dict[tuple[str, int], list[int]] = {}
    """By partition: if the clocks of two servers differ by a minute, one of them is read twice."""
    now = last = 0
    for start in range(0, many, MINUTES_BATCH_SIZE):
        calls = [
            (each.base, last, min(MINUTES_BATCH_SIZE, many - start), *COUNTED_EVENTS) for each in partitions
        ]
        found = await run_scripts(partitions[0].server, "minutes", calls)
        now = now or max(this for this, *_ in found)
        last = now - start - MINUTES_BATCH_SIZE
        for (base, *_), (_, *flat) in zip(calls, found, strict=True):
            for at in range(0, len(flat), MINUTE_ROW_WIDTH):
                rows[str(base), flat[at]] = flat[at + 1 : at + MINUTE_ROW_WIDTH]
    counts: dict[int, list[int]] = {}
    for (_, minute), row in rows.items():
        counts[minute] = [a + b for a, b in zip(counts.get(minute, [0] * len(row)), row, strict=True)]
    return [
        MinuteCounts(minute * MINUTE_MS, *counts.get(minute, ())) for minute in range(now - many + 1, now + 1)
    ]


class MinuteCache:
    """A cache of minutes. A minute that is over does not change, so it is read once."""

    def __init__(self) -> None:
        self._over: dict[str, dict[int, MinuteCounts]] = {}

    async def last(self, queue: str, partitions: Sequence[Partition], many: int) -> list[MinuteCounts]:
        """Like `last_minutes`."""
        found = await last_minutes(partitions, min(many, FRESH_MINUTES))
        known = self._over.get(queue, {})
        older = range(found[-1].at_ms - (many - 1) * MINUTE_MS, found[0].at_ms, MINUTE_MS)
        if any(at_ms not in known for at_ms in older):
            found, older = await last_minutes(partitions, many), range(0)
        last = found[-1].at_ms
        over = {one.at_ms: one for one in found if one.at_ms <= last - SETTLED_AFTER_MINUTES * MINUTE_MS}
        oldest = last - RETENTION_MINUTES * MINUTE_MS
        self._over[queue] = {at: one for at, one in (known | over).items() if at >= oldest}
        return [known[at_ms] for at_ms in older] + found
