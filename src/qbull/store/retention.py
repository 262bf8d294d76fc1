"""Retention: how long finished jobs of a queue stay, as its code says or as an operator has changed it.

A worker follows the live settings and sets `changed`. Other programs finish jobs only now and then, when they
cancel one or take back those of a dead worker: they ask the server before.
"""

from __future__ import annotations

import time

import msgspec

from qbull.config import Keep
from qbull.errors import ConfigError
from qbull.store.connection.server import Server

RETENTION_READ_SECONDS = 5.0
"""How long an answer of the server holds."""

RetentionArguments = tuple[int, int]
"""The arguments of scripts: number of jobs and age in milliseconds; -1 stands for no limit."""


class QueueRetention:
    """The retention of one queue, shared by all its partitions in a store.

    `live` is the name of the queue's live settings.
    """

    def __init__(self, server: Server, live: str) -> None:
        self._server = server
        self._live = live
        self._changed: Keep | None = None
        self._read_at: float | None = None
        self._is_followed = False

    def follow(self, changed: Keep | None) -> None:
        """Apply a live setting; None if the code decides. From now on the caller tells of every change."""
        self._changed, self._is_followed = changed, True

    async def refresh(self) -> None:
        """Read the live setting, unless it is followed or was read a moment ago."""
        now = time.monotonic()
        if self._is_followed or (self._read_at is not None and now - self._read_at < RETENTION_READ_SECONDS):
            return
        packed: bytes | None = await self._server.call("HGET", self._live, "keep")
        self._changed = None if packed is None else _decode(packed)
        self._read_at = now

    def in_force(self, declared: Keep) -> Keep:
        """The retention that counts."""
        return self._changed or declared

    def completed(self, declared: Keep) -> RetentionArguments:
        keep = self._changed or declared
        return _count(keep.completed), _ms(keep.completed_for)

    def failed(self, declared: Keep) -> RetentionArguments:
        keep = self._changed or declared
        return _count(keep.failed), _ms(keep.failed_for)


def _decode(packed: bytes) -> Keep | None:
    """The value of a live setting; see store/verbs/live_settings.py."""
    try:
        return msgspec.json.decode(packed.split(b"\n", 2)[2], type=Keep)
    except (IndexError, msgspec.MsgspecError, ConfigError):
        return None


def _count(value: int | None) -> int:
    return -1 if value is None else value


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1000)
