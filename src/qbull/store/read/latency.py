"""Latency by time: the counts that workers have added to each minute and hour (lua/histograms.lua)."""

from __future__ import annotations

import asyncio

from qbull.core.latency import LatencyPeriod, Slices
from qbull.store.store import Store

MINUTES_IN_HASH, HOURS_IN_HASH = 60, 24
"""A hash has the minutes of an hour, or the hours of a day."""
SETTLED_AFTER_SECONDS = 120
"""After that, no worker adds to a hash any more."""
MAX_CACHED_HASHES = 2000


class LatencyReader:
    """Reads the counts. A hash whose time is over does not change, so it is read once."""

    def __init__(self) -> None:
        self._over: dict[str, dict[int, dict[str, int]]] = {}

    async def read(self, store: Store, queue: str, period: LatencyPeriod, now_ms: int) -> Slices:
        """The counts of the minutes or hours of a period."""
        form = period.form
        minutes = form.unit_seconds == 60
        kind, width = ("minutes", MINUTES_IN_HASH) if minutes else ("hours", HOURS_IN_HASH)
        first = period.first * form.units
        last = min(first + form.steps * form.units - 1, now_ms // 1000 // form.unit_seconds)
        base = f"{store.names.queue(queue)}latency:{kind}:"
        ended = (now_ms // 1000 - SETTLED_AFTER_SECONDS) // (form.unit_seconds * width)
        numbers = range(first // width, last // width + 1)
        hashes = await asyncio.gather(*(self._hash(store, base, n, width, n < ended) for n in numbers))
        return {at: named for one in hashes for at, named in one.items() if first <= at <= last}

    async def _hash(
        self, store: Store, base: str, number: int, width: int, is_over: bool
    ) -> dict[int, dict[str, int]]:
        name = f"{base}{number}"
        known = self._over.get(name)
        if known is not None:
            return known
        flat = await store.server.call("HGETALL", name)
        found: dict[int, dict[str, int]] = {}
        for packed, n in zip(flat[::2], flat[1::2], strict=True):
            at, _, what = packed.decode("utf-8", "replace").partition(":")
            found.setdefault(number * width + int(at), {})[what] = int(n)
        if is_over:
            if len(self._over) >= MAX_CACHED_HASHES:
                self._over.clear()
            self._over[name] = found
        return found
