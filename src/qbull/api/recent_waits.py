"""Recent waits: wait times over the last 5 minutes, from snapshots taken at requests."""

from __future__ import annotations

import time
from collections import deque

WAIT_WINDOW_SECONDS = 300.0
"""The period that is reported."""
MIN_WAIT_WINDOW_SECONDS = 60.0
"""The minimum age of a snapshot to compare with; before that, the totals are reported."""
WAIT_SAMPLE_SECONDS = 15.0
"""The interval between two snapshots."""


class RecentWaits:
    """Snapshots of the wait histogram: number of jobs by log2 of their wait in microseconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[int, int]]] = deque()

    def lately(self, counted: dict[int, int]) -> dict[int, int]:
        """The waits since the oldest snapshot within the period."""
        now = time.monotonic()
        while len(self._seen) > 1 and self._seen[1][0] <= now - WAIT_WINDOW_SECONDS:
            self._seen.popleft()
        if not self._seen or now - self._seen[-1][0] >= WAIT_SAMPLE_SECONDS:
            self._seen.append((now, counted))
        at, before = self._seen[0]
        since = {bits: n - before.get(bits, 0) for bits, n in counted.items()}
        lost = any(n < 0 for n in since.values())  # Somebody has emptied the server.
        return counted if lost or now - at < MIN_WAIT_WINDOW_SECONDS else since
