"""Was the machine ours? How many cores other programs took while something was measured.

With two cores, one foreign test run halves a rate or multiplies a latency by a hundred, and not for both contestants
alike: such a pair says nothing. What is not ours is what the machine was busy with, less what the bench, its worker
processes and its server used.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.server import Server

Measured = TypeVar("Measured")

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


@dataclass
class Repeater:
    """Measures again if others used the machine meanwhile.

    Args:
        tries: how often one thing is measured at most.
        patience_seconds: how long to wait for others, in the whole run.
    """

    tries: int = 3
    patience_seconds: float = 120.0

    def least_disturbed(
        self, server: Server, measure: Callable[[], Measured], say: Callable[[Measured, float], None]
    ) -> tuple[float, Measured]:
        """The least disturbed measurement, and how many cores others used during it; `say` hears of each one."""
        tries: list[tuple[float, Measured]] = []
        while len(tries) < self.tries and (not tries or tries[-1][0] > DISTURBED):
            if tries:
                self._wait_until_quiet(server)
            watch = Watch(server)
            measured = measure()
            tries.append((watch.others(), measured))
            say(measured, tries[-1][0])
        return min(tries, key=lambda one: one[0])

    def _wait_until_quiet(self, server: Server) -> None:
        until = time.monotonic() + self.patience_seconds
        while time.monotonic() < until:
            watch = Watch(server)
            time.sleep(1)
            if watch.others() < DISTURBED:
                break
        self.patience_seconds = max(until - time.monotonic(), 0.0)


def _busy() -> float:
    """Seconds of all cores that were not idle, time that the host took away included."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
