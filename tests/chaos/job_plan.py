"""JobPlan: what a job of the campaign is to do, known from its name alone. Workers act on it, the checker knows it too."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

KEYS = 1_000
PARTITIONS = int(os.environ.get("CHAOS_PARTITIONS", "8"))
"""Of the queue "work"."""
MIN_IDLE = float(os.environ.get("CHAOS_MIN_IDLE", "2"))
"""Seconds without a heartbeat after which a worker is taken for dead."""
LATER = 1 << 24
"""Keys from here on have one job each, which is for later."""
ATTEMPTS = 4


class JobPlan(NamedTuple):
    """`failures`: so many attempts fail. `letter`: "mended" is a dead letter until the other system is back, "never" for ever."""

    failures: int
    letter: str
    seconds: float


WELL = JobPlan(0, "", 0.0)


def plan_of(key: int, number: int) -> JobPlan:
    """One in five fails once or twice, one in 200 becomes a dead letter; one in 32 takes its time."""
    lot = zlib.crc32(b"%d:%d" % (key, number))
    seconds = 0.004 if not lot >> 27 else 0.0
    match lot % 1000:
        case n if n < 140:
            return JobPlan(1, "", seconds)
        case n if n < 200:
            return JobPlan(2, "", seconds)
        case n if n < 204:
            return JobPlan(0, "mended", seconds)
        case 204:
            return JobPlan(0, "never", seconds)
    return JobPlan(0, "", seconds) if seconds else WELL


class KeyChoice:
    """Which keys come next: few of them often, most of them seldom. Each producer has keys of its own."""

    def __init__(self, producer: int, producers: int, seed: int, keys: int = KEYS) -> None:
        self._luck = random.Random(f"{seed}-{producer}")
        self._keys = range(producer, keys, producers)
        self._weights = list(accumulate(1 / (rank + 50) for rank in range(len(self._keys))))

    def keys(self, many: int) -> Sequence[int]:
        return self._luck.choices(self._keys, cum_weights=self._weights, k=many)
