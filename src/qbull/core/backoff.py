"""Exponential backoff: how long to wait between two attempts at something that is unavailable."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import count

import msgspec

MAX_DOUBLINGS = 64
"""Far beyond every maximum, and small enough for a float."""


class ExponentialBackoff(msgspec.Struct, frozen=True):
    """Delays that start with `first_seconds` and double up to `max_seconds`. They are the same each time.

    Callers that share a server spread their delays with `jittered`, so that they do not all come back at
    once.
    """

    first_seconds: float
    max_seconds: float

    def delay(self, attempt: int) -> float:
        """The seconds to wait after this many failed attempts, counted from 0."""
        return min(math.ldexp(self.first_seconds, min(attempt, MAX_DOUBLINGS)), self.max_seconds)

    def delays(self) -> Iterator[float]:
        """The seconds to wait after each failed attempt, without an end."""
        return map(self.delay, count())


def jittered(seconds: float, jitter: float = 0.5) -> float:
    """Spread a delay evenly: with a jitter of 0.5, between half of it and one and a half times it."""
    return seconds * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - spreading, not secrecy
