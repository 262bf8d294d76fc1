"""The windows of a limit, as an observer of the starts sees them."""

from __future__ import annotations


def heaviest_window(window: float, starts: list[tuple[float, int]]) -> int:
    """The largest weight that started in any window of so many seconds."""
    starts = sorted(starts)
    most = weight = begin = 0
    for at, heavy in starts:
        weight += heavy
        while starts[begin][0] <= at - window:
            weight -= starts[begin][1]
            begin += 1
        most = max(most, weight)
    return most
