"""Acknowledgements: somebody knows of a kind of error. Pure rules for when it needs attention again.

An acknowledged kind returns if it fails again after it was quiet, or if it fails much more often than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

QUIET_MS = 3_600_000
"""A kind without a failure for this long is quiet. lua/lib/errors.lua has the same number."""
RATE_WINDOW_MINUTES = 10
RATE_JUMP_FACTOR = 3
"""How many times the failures of the busiest minutes before make a jump."""
MIN_JUMP_FAILURES = 20
"""Fewer failures in the window are no jump."""

Returned = Literal["reappeared", "rate"]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Who knows of a kind of error, since when, and a note.

    Attributes:
        by: the author.
        at: when it was acknowledged.
        note: the words of the author about it.
        recent: failures in the busiest RATE_WINDOW_MINUTES of the hour before.
    """

    by: str
    at: datetime
    note: str
    recent: int = 0

    def returned(self, since_ms: int, minutes: Mapping[int, int]) -> Returned | None:
        """Why the kind needs attention again; None while it does not.

        Args:
            since_ms: the start of its latest series of failures without a quiet time.
            minutes: its failures by the number of the minute.
        """
        at_ms = int(self.at.timestamp() * 1000)
        if since_ms > at_ms:
            return "reappeared"
        after = {minute: n for minute, n in minutes.items() if minute > at_ms // 60_000}
        limit = max(self.recent * RATE_JUMP_FACTOR, MIN_JUMP_FAILURES)
        return "rate" if busiest_window(after) > limit else None


def busiest_window(minutes: Mapping[int, int]) -> int:
    """The most failures within RATE_WINDOW_MINUTES."""
    return max(
        (
            sum(n for minute, n in minutes.items() if last - RATE_WINDOW_MINUTES < minute <= last)
            for last in minutes
        ),
        default=0,
    )


def series_start(series: Iterable[tuple[int, int]]) -> int:
    """The start of the latest series of failures over all partitions; each has the start and end of its own.

    Two series are one if there is no quiet time between them.
    """
    start = end = 0
    for since_ms, last_ms in sorted(series):
        if not end or since_ms - end >= QUIET_MS:
            start = since_ms
        end = max(end, last_ms)
    return start
