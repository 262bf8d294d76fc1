"""Usage: how much memory and CPU a worker process needs, for its heartbeat.

On Linux the supervisor reads it from /proc, so that the numbers of a process whose event loop stands still
are right as well. Elsewhere a process can only ask for itself, and the system tells the most memory that it
had.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from qbull.store.verbs.workers import ProcessUsage

MIN_MEASURED_SECONDS = 1.0
"""The shortest time between two measurements: the system counts CPU in steps of 10 ms."""
MAX_MEASURED_PROCESSES = 100
"""Child processes of one worker that are measured."""
PROC = Path("/proc")


class _Used(NamedTuple):
    memory_bytes: int
    cpu_seconds: float


class UsageMeter:
    """Measures some processes. The CPU is that of the time since the last measurement.

    Args:
        processes: Returns the process of each worker.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._before: dict[str, tuple[float, float]] = {}
        self._measured_at = -MIN_MEASURED_SECONDS
        self._found: dict[str, ProcessUsage] = {}

    def measure(self) -> dict[str, ProcessUsage]:
        """The usage of each worker whose process can be measured; the last one if that was just now."""
        if time.monotonic() - self._measured_at >= MIN_MEASURED_SECONDS:
            self._measured_at = time.monotonic()
            self._found = self._measure()
        return self._found

    def _measure(self) -> dict[str, ProcessUsage]:
        found: dict[str, ProcessUsage] = {}
        before, self._before = self._before, {}
        for worker, pid in self._processes().items():
            used = _used_by(pid)
            if used is None:
                continue
            now = time.monotonic()
            self._before[worker] = (now, used.cpu_seconds)
            found[worker] = ProcessUsage(used.memory_bytes, _share(before.get(worker), now, used.cpu_seconds))
        return found


def _share(before: tuple[float, float] | None, now: float, cpu_seconds: float) -> float | None:
    """Percent of one core."""
    if before is None or now <= before[0]:
        return None
    return round(max(cpu_seconds - before[1], 0.0) / (now - before[0]) * 100, 1)


def _used_by(pid: int) -> _Used | None:
    """The usage of a process and its child processes; None if the system does not tell."""
    if (PROC / "self" / "stat").exists():
        with suppress(OSError, ValueError, IndexError):
            return _read_proc(pid)
        return None
    return _own_usage() if pid == os.getpid() else None


def _read_proc(pid: int) -> _Used:
    memory, seconds = _read_process(pid)
    for child in _descendants(pid):
        with suppress(OSError, ValueError, IndexError):  # It has ended meanwhile.
            more, busy = _read_process(child)
            memory, seconds = memory + more, seconds + busy
    return _Used(memory, seconds)


def _read_process(pid: int) -> _Used:
    """One process, with the CPU of its child processes that have ended."""
    # The name of the program is in brackets, and may have spaces and brackets in it.
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(fields[at]) for at in range(11, 15))
    return _Used(int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"))


def _descendants(pid: int) -> list[int]:
    """The child processes of a process and theirs."""
    found: list[int] = []
    ahead = [pid]
    while ahead and len(found) < MAX_MEASURED_PROCESSES:
        parent = ahead.pop()
        with suppress(OSError, ValueError):
            for task in (PROC / str(parent) / "task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                ahead += children
    return found[:MAX_MEASURED_PROCESSES]


def _own_usage() -> _Used | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    # macOS tells bytes, other systems kilobytes.
    return _Used(own.ru_maxrss * (1 if sys.platform == "darwin" else 1024), seconds)
