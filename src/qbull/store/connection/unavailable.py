"""Unavailable servers: the fact and the remedy for what they answer."""

from __future__ import annotations

import redis.exceptions as foreign

DEMOTED_ERRORS = (foreign.ReadOnlyError, foreign.MasterDownError)
UNAVAILABLE_ERRORS = (
    foreign.ConnectionError,
    foreign.TimeoutError,
    foreign.BusyLoadingError,
    foreign.ClusterDownError,
    foreign.TryAgainError,
    *DEMOTED_ERRORS,
    foreign.InvalidResponse,
    OSError,
    EOFError,
)
# redis-py before 6 has no types for the first three, outside of its own cluster client.
UNAVAILABLE_PREFIXES = (
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MASTERDOWN",
    "UNBLOCKED",
    "MISCONF",
    "BUSY ",
    "NOREPLICAS",
    "Script attempted to access a non local key",  # its slot is being moved
    "WAIT cannot be used with replica",  # it was the primary a moment ago
    "WAITAOF cannot be used with replica",
)


def unavailable_fact(text: str) -> str:
    """Why a server is unavailable, from its answer or the client's error."""
    if text.startswith("MISCONF"):
        reason = text.partition("AOF file: ")[2]
        return (
            f"cannot write to its disk{f' ({reason})' if reason else ''} and accepts no changes; "
            "free space on that disk, the log of the server says more"
        )
    return f"cannot be reached: {text}"
