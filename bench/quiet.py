"""Was the machine ours? How many cores other programs took while something was measured.

With two cores, one foreign test run halves a rate or multiplies a latency by a hundred, and not for both contestants
alike: such a pair says nothing. What is not ours is what the machine was busy with, less what the bench, its worker
processes and its server used.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from bench.server import Server

STAT = Path("/proc/stat")
DISTURBED = 0.25
"""Cores of others from which on a measurement is not to be trusted. The kernel's own work for our disk writes
counts among them, and stays well below."""


class Watch:
    """Begins when it is made; worker processes that ended since then are counted as ours."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = time.monotonic()
        self._busy, self._ours = _busy(), self._own()

    def others(self) -> float:
        """Cores that others have used; 0 where the system does not tell."""
        foreign = (_busy() - self._busy) - (self._own() - self._ours)
        return max(foreign / (time.monotonic() - self._began), 0.0) if STAT.exists() else 0.0

    def _own(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return self._server.cpu() + sum(one.ru_utime + one.ru_stime for one in used)


def wait_until_quiet(server: Server, patience: float) -> float:
    """Wait until others leave the machine alone, at most so many seconds; answers with how many are left."""
    until = time.monotonic() + patience
    while (left := until - time.monotonic()) > 0:
        watch = Watch(server)
        time.sleep(1)
        if watch.others() < DISTURBED:
            break
    return max(left, 0.0)


def _busy() -> float:
    """Seconds of all cores that were not idle, time that the host took away included."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
