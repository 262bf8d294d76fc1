"""Trend: does a row of samples rise for good? Pure; soak.py asks it of each figure that must stay flat."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import median

POINTS = 240


@dataclass(frozen=True)
class Trend:
    """`growth` is what the samples gained from their first to their last, by the median of all slopes between two of them.

    A median of slopes does not hear single peaks (an AOF rewrite, a collection that is due), and what has settled on another level
    halfway counts with half of it at most.
    """

    first: float
    last: float
    highest: float
    growth: float
    allowed: float

    @property
    def leaks(self) -> bool:
        return self.growth > self.allowed


def trend(samples: list[tuple[float, float]], share: float, least: float) -> Trend:
    """Of (second, value) pairs. Allowed is this share of the value, and at least so much."""
    points = _thinned(samples)
    slopes = [(b - a) / (then - now) for (now, a), (then, b) in combinations(points, 2) if then > now]
    span = points[-1][0] - points[0][0]
    growth = median(slopes) * span if slopes else 0.0
    values = [value for _, value in samples]
    middle = median(values)
    return Trend(
        first=median(values[: max(1, len(values) // 10)]),
        last=median(values[-max(1, len(values) // 10) :]),
        highest=max(values),
        growth=growth,
        allowed=max(share * middle, least),
    )


def _thinned(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many, evenly: the pairs are many else."""
    step = max(1, -(-len(samples) // POINTS))
    return samples[::step]
