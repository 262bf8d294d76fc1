"""Older starts: the starts of a lane in the partitions that it was in before its queue was repartitioned.

They count for the rate of the lane until their window has passed. The log of starts stays where it was
written, because in a cluster the partitions may be on different nodes. A lane starts in its new partition
only when the older ones have no jobs of it. So its older logs do not change any more, and every worker may
read them.
"""

from __future__ import annotations

import time

from qbull.config import QueueSettings
from qbull.core.layout import Layout, generation_of
from qbull.core.rate import Rate
from qbull.store.store import Store
from qbull.store.verbs.limits import lane_starts
from qbull.store.verbs.partition import Partition

LAYOUT_TTL_SECONDS = 5.0
"""Seconds after which the layout is read again, while older partitions have unfinished jobs."""


class OlderStarts:
    """For one queue that was repartitioned."""

    def __init__(self, store: Store, settings: QueueSettings) -> None:
        self._store = store
        self._settings = settings
        self._layout: Layout | None = None
        self._layout_until = 0.0
        self._counts_until: dict[int, float] = {}

    async def logs(self, partition: Partition, lane: bytes, rate: Rate) -> list[bytes]:
        """The logs of a lane in the partitions before this one that still count."""
        layout = await self._known_layout(partition, rate)
        own, now = layout.generation_with(partition.number), time.monotonic()
        logs: list[bytes] = []
        for older in layout.older:
            if older.number < own.number and now < self._counts_until[older.number]:
                homes = older.homes(lane, own, partition.number)
                earlier = [self._store.partition(self._settings, number) for number in homes]
                logs += [await lane_starts(one, lane) for one in earlier]
        return [log for log in logs if log]

    async def _known_layout(self, partition: Partition, rate: Rate) -> Layout:
        now, layout = time.monotonic(), self._layout
        if layout is None or layout.generation < generation_of(partition.number) or now > self._layout_until:
            layout = self._layout = await self._store.layout(self._settings)
            self._layout_until = now + LAYOUT_TTL_SECONDS if layout.draining else float("inf")
            for older in layout.older:
                # Nothing starts any more in a generation that has been drained.
                until = float("inf") if older.state == "draining" else now + rate.window_ms / 1000
                self._counts_until[older.number] = min(until, self._counts_until.get(older.number, until))
        return layout
