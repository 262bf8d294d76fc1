"""`qbull dev`: find the Python files of a project that were saved, added or removed.

It polls instead of using notifications of the kernel. Polling needs no dependency, works on every file system
(also in containers and on network mounts), and skips the ignored directories, which are the large ones.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

FILE_POLL_SECONDS = 0.25
"""Seconds between two scans, unless a scan takes long."""
MAX_FILE_POLL_RATIO = 0.05
"""Share of the time that may be spent on scans: a large project is scanned less often."""
SAVE_DEBOUNCE_SECONDS = 0.05
"""Seconds without a further change after which a save is complete: editors and checkouts write in several
steps.
"""

IGNORED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Directories that are not scanned, besides hidden ones and virtual environments."""

FileMarks = dict[str, tuple[int, int, int]]
"""The modification time, size and inode of each file. The inode changes if an editor replaces the file."""


class FileWatcher:
    """Reports changes of Python files below some directories."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [str(root) for root in roots]
        self._seen, self._pause = self._scan()

    async def changed(self) -> list[Path]:
        """Wait until files have changed since the last call and the change is complete. Safe to cancel."""
        while True:
            await asyncio.sleep(self._pause)
            now, self._pause = await asyncio.to_thread(self._scan)
            while now != self._seen:
                await asyncio.sleep(SAVE_DEBOUNCE_SECONDS)
                later, _ = await asyncio.to_thread(self._scan)
                if later == now:
                    before, self._seen = self._seen, now
                    return sorted(
                        Path(name) for name in before.keys() | now.keys() if before.get(name) != now.get(name)
                    )
                now = later

    def _scan(self) -> tuple[FileMarks, float]:
        """Return the marks of all files, and the seconds to wait before the next scan."""
        started = time.perf_counter()
        marks: FileMarks = {}
        pending = [*self._roots]
        while pending:
            pending += _scan_directory(pending.pop(), marks)
        return marks, max(FILE_POLL_SECONDS, (time.perf_counter() - started) / MAX_FILE_POLL_RATIO)


def _scan_directory(directory: str, marks: FileMarks) -> list[str]:
    """Add the files of one directory to `marks`.

    Returns its subdirectories. Files that vanish meanwhile are skipped.
    """
    try:
        with os.scandir(directory) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []
    if any(entry.name == "pyvenv.cfg" for entry in shown):
        return []
    inside = []
    for entry in shown:
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in IGNORED_DIRECTORIES:
                    inside.append(entry.path)
            elif entry.name.endswith(".py"):
                facts = entry.stat()
                marks[entry.path] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            continue
    return inside


def is_own(file: str) -> bool:
    """Tell whether a file belongs to the project, and not to a library or Python."""
    try:
        inside = Path(file).relative_to(Path.cwd())
    except ValueError:
        return False
    return not any(part in IGNORED_DIRECTORIES or part.startswith(".") for part in inside.parts)
