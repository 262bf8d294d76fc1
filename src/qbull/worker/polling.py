"""How often a worker looks at its partitions when nothing wakes it up."""

from __future__ import annotations


def poll_pause(seconds: float, partitions: int, *, up_to: int) -> float:
    """Seconds between two looks at so many partitions, each of which is a call to the server.

    With more partitions than `up_to` a worker looks less often, so that it costs the server no more.
    """
    return seconds * max(partitions / up_to, 1)
