"""Recycle: replace a worker process that has run many jobs or uses much memory, between jobs.

The process goes on until its successor runs jobs. Then it fetches nothing more, lets its running jobs end,
and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress

from qbull.worker.supervisor_link import SupervisorLink

log = logging.getLogger("qbull.worker")

RECYCLE_POLL_SECONDS = 0.25


class Recycler:
    """Asks for a successor when a limit is reached.

    Args:
        link: The link to the supervisor.
        started_jobs: Returns how many jobs this process has started.
        max_jobs: The number of jobs after which it is replaced; None for any number.
        max_memory_bytes: The resident memory above which it is replaced; None for any size.
    """

    def __init__(
        self,
        link: SupervisorLink,
        started_jobs: Callable[[], int],
        max_jobs: int | None,
        max_memory_bytes: int | None,
    ) -> None:
        self._link = link
        self._started_jobs = started_jobs
        self._max_jobs = max_jobs
        self._max_memory_bytes = max_memory_bytes

    async def run(self) -> None:
        """Look again and again, until a limit is reached."""
        if self._max_jobs is None and self._max_memory_bytes is None:
            return
        reason = None
        while reason is None:
            await asyncio.sleep(RECYCLE_POLL_SECONDS)
            reason = self._reason()
        self._link.ask_for_successor(reason, logging.INFO)

    def _reason(self) -> str | None:
        """The limit that is reached.

        A process that has run nothing is not replaced: the next one would be no smaller.
        """
        started = self._started_jobs()
        if self._max_jobs is not None and started >= self._max_jobs:
            return f"this process has started {started} jobs"
        if self._max_memory_bytes is None or not started:
            return None
        used = resident_bytes()
        if used <= self._max_memory_bytes:
            return None
        return f"this process uses {used / 2**20:.0f} MB of memory"


def resident_bytes() -> int:
    """The memory that this process occupies; outside of Linux, the most that it has occupied."""
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
