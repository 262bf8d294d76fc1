"""Older lanes: which lanes have jobs in the partitions of earlier generations.

A lane starts in its new partition as soon as the older ones have no jobs of it. Where the order is confirmed,
"no jobs" counts only once the replicas of the older partition have all that was seen (confirmed_move.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

from qbull.config import QueueSettings
from qbull.core.layout import Layout
from qbull.core.route import PARTITION_LANE
from qbull.errors import ServerAway
from qbull.store.store import Store
from qbull.store.verbs.confirmed_move import MoveConfirmer

LANE_SCAN_BATCH_SIZE = 1000


class OlderLanes:
    """For one queue."""

    def __init__(self, store: Store, settings: QueueSettings, confirmer: MoveConfirmer) -> None:
        self._store = store
        self._settings = settings
        self._confirmer = confirmer

    async def among(
        self, layout: Layout, number: int, lanes: Sequence[bytes]
    ) -> tuple[set[bytes], ServerAway | None]:
        """The lanes of partition `number` among these of which an older partition has jobs, or may have.

        Also returns the error if an older partition is unavailable or is not confirmed.
        """
        found, trouble = await self._among(layout, number, lanes, confirmed=False)
        empty = [lane for lane in lanes if lane not in found]
        if empty and self._confirmer.order is not None:
            more, doubt = await self._among(layout, number, empty, confirmed=True)
            found, trouble = found | more, trouble or doubt
        return found, trouble

    async def exist(self, layout: Layout, number: int) -> bool:
        """Whether an older partition has jobs of any lane of partition `number`."""
        own = layout.generation_with(number)
        for confirmed in (False, True) if self._confirmer.order is not None else (False,):
            for older in layout.before(number):
                for home in older.homes(PARTITION_LANE, own, number):  # all that its keys may come from
                    if await self._read(home, "HLEN", confirmed=confirmed):
                        return True
        return False

    async def scan(self, number: int) -> AsyncIterator[list[bytes]]:
        """All lanes of a partition."""
        cursor, count = b"0", (b"COUNT", LANE_SCAN_BATCH_SIZE)
        while True:
            cursor, flat = await self._read(number, "HSCAN", cursor, *count, confirmed=True)
            yield flat[::2]
            if cursor == b"0":
                return

    async def _among(
        self, layout: Layout, number: int, lanes: Sequence[bytes], *, confirmed: bool
    ) -> tuple[set[bytes], ServerAway | None]:
        own = layout.generation_with(number)
        found: set[bytes] = set()
        trouble: ServerAway | None = None
        for older in layout.before(number):
            homes: dict[int, list[bytes]] = defaultdict(list)
            for lane in lanes:
                for home in older.homes(lane, own, number):
                    homes[home].append(lane)
            for home, some in homes.items():
                try:
                    counts = await self._read(home, "HMGET", *some, confirmed=confirmed)
                except ServerAway as error:
                    counts, trouble = some, error
                found.update(lane for lane, count in zip(some, counts, strict=True) if count is not None)
        return found, trouble

    async def _read(self, number: int, command: str, *arguments: bytes | int, confirmed: bool) -> Any:
        """Read the lanes of a partition. With `confirmed`, its replicas have all that was seen."""
        base, order = self._store.names.partition(self._settings.name, number), self._confirmer.order
        if confirmed and order is not None:
            return await order.read(base, command, base + "lanes", *arguments)
        return await self._store.server.call(command, base + "lanes", *arguments)
