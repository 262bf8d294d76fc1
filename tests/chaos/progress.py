"""Progress: how far a campaign is, as its histories say while they grow."""

from __future__ import annotations

import os
from pathlib import Path

from history import ACK, RUN

BATCH = 375
"""Jobs of an average batch of a producer: those for later are smaller."""
STEP, TOLD = b'"what":"step"', b'"what":"told"'
TOLD_OF_CALLS = b'"load":"same ids","what":"told"', b'"load":"unique","what":"told"'
"""Several of these calls have one job."""


class Progress:
    """Each look goes through the directory once. It reads only what was added to the events since the look before."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, int] = {}
        self.acknowledged = 0
        """Jobs of the sequences, approximately, and of the small loads."""
        self.started = 0
        """Jobs of the sequences, approximately: each has two records at least."""
        self.steps = 0
        """Of durable tasks."""
        self._told = 0

    def look(self) -> None:
        acks = runs = 0
        with os.scandir(self._directory) as files:
            for file in files:
                if file.name.endswith(".acks"):
                    acks += file.stat().st_size
                elif file.name.endswith(".runs"):
                    runs += file.stat().st_size
                elif file.name.endswith(".events") and file.stat().st_size > self._read.get(file.path, 0):
                    self._count(file.path)
        self.acknowledged = acks // ACK.size * BATCH + self._told
        self.started = runs // RUN.size // 2

    def _count(self, path: str) -> None:
        with open(path, "rb") as file:
            file.seek(self._read.get(path, 0))
            lines, end, _ = file.read().rpartition(b"\n")
        self._read[path] = self._read.get(path, 0) + len(lines) + len(end)
        self.steps += lines.count(STEP)
        self._told += lines.count(TOLD) - sum(map(lines.count, TOLD_OF_CALLS))
