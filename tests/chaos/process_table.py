"""The process table of the machine: which of a campaign's processes has lost its parent, and which process a connection belongs to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from job_plan import MIN_IDLE

ORPHAN_SECONDS = MIN_IDLE / 2 + 8
"""Workers whose supervisor was killed stop by themselves, within half of MIN_IDLE; a busy machine needs a moment more."""
PROC = Path("/proc")


class Entry(NamedTuple):
    pid: int
    parent: int
    state: str
    born: str
    ticks: int
    """Of processor time, its own alone."""

    @property
    def identity(self) -> tuple[int, str]:
        """Numbers are used again."""
        return self.pid, self.born


def entries(proc: Path = PROC) -> Iterator[Entry]:
    """All processes of the machine."""
    for name in os.listdir(proc):
        if name.isdigit():
            with suppress(OSError, IndexError):
                state, parent, *rest = (proc / name / "stat").read_text().rpartition(")")[2].split()
                yield Entry(int(name), int(parent), state, rest[17], int(rest[9]) + int(rest[10]))


class OrphanWatch:
    """Looks for processes of the campaign that run on without the one that started them.

    All of them have the campaign's directory in their environment. `started` are those that the campaign started itself. A
    process that has not run a job yet is none: one that still starts sees the end of its supervisor when it has loaded the app.
    """

    def __init__(self, directory: Path, proc: Path = PROC) -> None:
        self._directory = directory
        self._mark = f"CHAOS_DIRECTORY={directory}".encode()
        self._proc = proc
        self._known: dict[tuple[int, str], bool] = {}
        self._since: dict[int, float] = {}
        self.found: dict[int, str] = {}

    def look(self, started: Iterable[int]) -> None:
        now, own = time.monotonic(), set(started)
        ours = {pid: (parent, state) for pid, (parent, state) in self._ours().items() if state not in "ZX"}
        lost = {
            pid
            for pid, (parent, state) in ours.items()
            if pid not in own and parent not in ours.keys() | own and state not in "Tt"
        }
        self._since = {pid: self._since.get(pid, now) for pid in lost}
        for pid, since in self._since.items():
            if now - since > ORPHAN_SECONDS and pid not in self.found and self._has_run_jobs(pid):
                command = b""
                with suppress(OSError):
                    command = (self._proc / str(pid) / "cmdline").read_bytes()
                self.found[pid] = command.replace(b"\0", b" ").decode(errors="replace")[:120]

    def _has_run_jobs(self, pid: int) -> bool:
        return any(self._directory.glob(f"{pid}-*.runs")) or any(self._directory.glob(f"{pid}-*.events"))

    def _ours(self) -> dict[int, tuple[int, str]]:
        """The parent and the state of each process of the campaign."""
        found = {}
        for entry in entries(self._proc):
            with suppress(OSError):
                if entry.identity not in self._known:
                    environ = (self._proc / str(entry.pid) / "environ").read_bytes()
                    self._known[entry.identity] = self._mark in environ.split(b"\0")
                if self._known[entry.identity]:
                    found[entry.pid] = entry.parent, entry.state
        return found


def owners_of(ports: Iterable[int], processes: Mapping[int, list[int]]) -> set[int]:
    """Which of these supervisors and workers have a connection from one of these local ports.

    A supervisor sends the heartbeats of its workers: what it cannot send, they have not sent.
    """
    inodes = _inodes(set(ports))
    cut: set[int] = set()
    for supervisor, workers in processes.items():
        if _sockets(supervisor) & inodes:
            cut |= {supervisor, *workers}
        cut |= {worker for worker in workers if _sockets(worker) & inodes}
    return cut


def _inodes(ports: set[int]) -> set[str]:
    found = set()
    for line in (PROC / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) in ports:
            found.add(fields[9])
    return found - {"0"}


def _sockets(process: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for descriptor in os.listdir(PROC / str(process) / "fd"):
            with suppress(OSError):
                target = os.readlink(PROC / str(process) / "fd" / descriptor)
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
