"""Progress: the progress and log lines of running jobs, as they are sent, stored and read.

The verb is lua/progress_write.lua.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from qbull.core.log_level import LogLevel, unmarked
from qbull.core.progress import Progress
from qbull.core.record import to_datetime

MAX_LOG_LINES = 1000
"""Number of log lines kept per job, the newest."""
MAX_LOG_LINE_CHARS = 2000
"""Maximum length of a line."""


class JobUpdate(NamedTuple):
    """New progress and log lines of a running job. `told`: lines that this delivery has logged before."""

    id: bytes
    position: bytes
    lane: bytes
    progress: Progress | None
    attempt: int
    told: int
    lines: Sequence[str]

    def arguments(self) -> list[bytes | str | int]:
        lines = [line.encode("utf-8", "replace") for line in self.lines]
        progress = "" if self.progress is None else self.progress.packed()
        return [self.id, self.position, self.lane, progress, self.attempt, self.told, len(lines), *lines]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a task has logged.

    Args:
        at: the time of the line, by the server's clock.
        attempt: the attempt that logged it, from 1.
        text: the line.
        level: debug, info, warning or error.
    """

    at: datetime
    attempt: int
    text: str
    level: LogLevel = "info"


def read_log_line(stored: bytes) -> LogLine:
    at, attempt, text = stored.split(b" ", 2)
    return LogLine(to_datetime(int(at)), int(attempt), *unmarked(text.decode("utf-8", "replace")))
