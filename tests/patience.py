"""How often a test that waits looks again: looking takes processor time from the tests that run beside it."""

from __future__ import annotations

SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.05


def pause_after(waited: float) -> float:
    """The seconds until the next look, a fiftieth of the time that it has taken so far."""
    return min(max(waited / 50, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
