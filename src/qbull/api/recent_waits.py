"""Waits: how long jobs waited lately. Workers count waits from their first job on; this is what came since some minutes ago, as far as somebody looked then."""

from __future__ import annotations

import time
from collections import deque

WAIT_WINDOW_SECONDS = 300.0
"""Seconds back over which waits are looked at."""
MIN_WAIT_WINDOW_SECONDS = 60.0
"""Seconds after which a difference says something; until then it is all that was ever counted."""
WAIT_SAMPLE_SECONDS = 15.0
"""Seconds between two counts that are remembered."""


class RecentWaits:
    """What was counted, now and some minutes ago: how many by the length of their wait in bits of microseconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[int, int]]] = deque()

    def lately(self, counted: dict[int, int]) -> dict[int, int]:
        """What came since the oldest count that is not too old."""
        now = time.monotonic()
        while len(self._seen) > 1 and self._seen[1][0] <= now - WAIT_WINDOW_SECONDS:
            self._seen.popleft()
        if not self._seen or now - self._seen[-1][0] >= WAIT_SAMPLE_SECONDS:
            self._seen.append((now, counted))
        at, before = self._seen[0]
        since = {bits: n - before.get(bits, 0) for bits, n in counted.items()}
        lost = any(n < 0 for n in since.values())  # somebody has emptied the server
        return counted if lost or now - at < MIN_WAIT_WINDOW_SECONDS else since
