"""Unavailable servers: the fact and the remedy for what they answer."""

from __future__ import annotations


def unavailable_fact(text: str) -> str:
    """Why a server is unavailable, from its answer or the client's error."""
    if text.startswith("MISCONF"):
        reason = text.partition("AOF file: ")[2]
        return (
            f"cannot write to its disk{f' ({reason})' if reason else ''} and accepts no changes; "
            "free space on that disk, the log of the server says more"
        )
    return f"cannot be reached: {text}"
