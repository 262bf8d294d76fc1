"""`qbull dev`: which Python files of a project were saved, added or removed.

It looks again and again instead of being told by the kernel: that needs no dependency, works on every file system (also on
those that a container or a network mounts), and never enters the directories that it ignores, which are the large ones.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

FILE_POLL_SECONDS = 0.25
"""Seconds between two looks …"""
FILE_POLL_FACTOR = 20
"""… or so many times what a look takes, where that is longer: a large tree costs a twentieth of one core at most."""
SAVE_DEBOUNCE_SECONDS = 0.05
"""Seconds without a further change, after which a save is over: editors write in steps, and a checkout writes many files."""

IGNORED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Directories that are not entered, besides hidden ones and virtual environments."""

FileMarks = dict[str, tuple[int, int, int]]
"""Of each file what changes when it is saved: its time, its size, and its inode, as many editors put a new file in its place."""


class FileWatcher:
    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [str(root) for root in roots]
        self._seen, self._pause = self._look()

    async def changed(self) -> list[Path]:
        """Wait for a change since the last one that was told, and until it is over. It may be cancelled: then nothing was told."""
        while True:
            await asyncio.sleep(self._pause)
            now, self._pause = await asyncio.to_thread(self._look)
            while now != self._seen:
                await asyncio.sleep(SAVE_DEBOUNCE_SECONDS)
                later, _ = await asyncio.to_thread(self._look)
                if later == now:
                    before, self._seen = self._seen, now
                    return sorted(
                        Path(name) for name in before.keys() | now.keys() if before.get(name) != now.get(name)
                    )
                now = later

    def _look(self) -> tuple[FileMarks, float]:
        """The marks of all files, and how long to wait before the next look."""
        began = time.perf_counter()
        found: FileMarks = {}
        pending = [*self._roots]
        while pending:
            pending += _scan_directory(pending.pop(), found)
        return found, max(FILE_POLL_SECONDS, FILE_POLL_FACTOR * (time.perf_counter() - began))


def _scan_directory(directory: str, found: FileMarks) -> list[str]:
    """Mark the files of one directory; answers with the directories in it. What goes away meanwhile is not there."""
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
                found[entry.path] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            continue
    return inside


def is_own(file: str) -> bool:
    """Is it the project's, and not that of a library or of Python?"""
    try:
        inside = Path(file).relative_to(Path.cwd())
    except ValueError:
        return False
    return not any(part in IGNORED_DIRECTORIES or part.startswith(".") for part in inside.parts)
