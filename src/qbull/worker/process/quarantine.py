"""The quarantine, as the supervisor keeps it: suspects that workers hold, and the process that runs them.

A suspect is a job whose worker crashed. It runs in a process that runs only suspects, so that it stops
nobody else if it crashes again. The process is started when a worker finds a suspect, and ends when it has
been idle for a while.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from qbull.worker.process.channel import SuspectFound, SuspectTaken, TakeSuspect
from qbull.worker.process.child import WorkerProcess


class QuarantineKeeper:
    """Knows which worker holds which suspect until the quarantine process has taken it over.

    A suspect that was offered to a process which died is offered to the next one.
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        """Set while suspects wait."""
        self._holders: dict[SuspectFound, WorkerProcess] = {}
        self._taken: dict[tuple[str, int, bytes], str] = {}
        """The task of each suspect that the process has taken, by the position of its delivery."""
        self._crashed_tasks: set[tuple[str, str]] = set()
        """Queue and task of the suspects that have crashed the quarantine process."""
        self._process: WorkerProcess | None = None

    def found(self, holder: WorkerProcess, suspect: SuspectFound) -> None:
        """A worker holds a suspect."""
        self._holders[suspect] = holder
        self.wanted.set()
        self._offer(suspect)

    def expect(self) -> None:
        """A worker has crashed: its jobs are suspects, and will come up soon."""
        self.wanted.set()

    def ready(self, process: WorkerProcess) -> None:
        """The quarantine process can run jobs."""
        self._process = process
        for suspect in self._holders:
            self._offer(suspect)

    def taken(self, suspect: SuspectFound) -> None:
        """The quarantine process has a suspect, or the suspect has ended."""
        holder = self._holders.pop(suspect, None)
        self._taken[suspect.queue, suspect.partition, suspect.position] = suspect.task
        self._update()
        if holder is not None:
            holder.channel.send(SuspectTaken(suspect))

    def idle(self) -> None:
        """The quarantine process has had nothing to run for a while: end it, unless a suspect has come up."""
        if self._process is not None and not self._holders:
            self._process.send_signal(signal.SIGTERM)
            self._process = None
            self._crashed_tasks.clear()

    def ended(self, process: WorkerProcess, running: Sequence[tuple[str, int, bytes]]) -> None:
        """A process has ended. The supervisor reclaims the suspects that it held.

        Args:
            process: The process.
            running: Queue, partition and position of the jobs that it was running.
        """
        if process is self._process:
            self._process = None
            self._crashed_tasks |= {(job[0], self._taken[job]) for job in running if job in self._taken}
            self._taken.clear()
        self._holders = {
            suspect: holder for suspect, holder in self._holders.items() if holder is not process
        }
        self._update()

    def _offer(self, suspect: SuspectFound) -> None:
        if self._process is not None:
            self._process.channel.send(TakeSuspect(suspect, self._holders[suspect].id, self._rank(suspect)))

    def _rank(self, suspect: SuspectFound) -> int:
        """Suspects that are less likely to crash again go first: those with fewer crashes, and of these the
        ones whose task has not crashed the quarantine process.
        """
        return 2 * suspect.crashes + ((suspect.queue, suspect.task) in self._crashed_tasks)

    def _update(self) -> None:
        if not self._holders:
            self.wanted.clear()
