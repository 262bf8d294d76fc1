"""The starter: starts the worker processes of a supervisor, and keeps spare ones after a crash.

A process needs half a second or more to import the app. If a job crashes a process, others may do so soon. So
for some minutes after a crash, spare processes have imported the app and wait for a role: the place of a
process that has died, or the quarantine. Without a crash there are none, because they cost memory.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import suppress

from qbull.core.backoff import ExponentialBackoff
from qbull.worker.actor import BackgroundTasks, first_of
from qbull.worker.process.child import WorkerCommand, WorkerProcess

log = logging.getLogger("qbull.supervisor")

SPARE_PROCESS_COUNT = 2
"""Spare processes that wait for a role after a crash."""
SPARE_SECONDS = 120.0
"""Seconds after the last crash for which spare processes are kept."""
SPARE_DELAY_SECONDS = 1.0
"""Seconds without a crash or a start before a spare process starts. If several jobs crash in a row, the
processes that take over come first.
"""
SPARE_STOP_SECONDS = 1.0
"""Seconds in which a spare process has to end."""
START_BACKOFF = ExponentialBackoff(first_seconds=0.25, max_seconds=30.0)


class ProcessStarter:
    """Starts processes until `stop` is set.

    Args:
        command: How to start a process.
        slots: The number of slots on the crash board of a process.
        stop: Set when the supervisor stops.
    """

    def __init__(self, command: WorkerCommand, slots: int, stop: asyncio.Event) -> None:
        self._command = command
        self._slots = slots
        self._stop = stop
        self._spares: list[WorkerProcess] = []
        self._ending: list[WorkerProcess] = []
        self._spares_until = 0.0
        self._spares_from = 0.0
        self._starting = BackgroundTasks()
        self._changed = asyncio.Event()
        # The machine is short of memory, processes or files.
        self._short = False

    async def start(self, number: int | None) -> WorkerProcess | None:
        """Give the role of this number to a spare process, or else to a new one.

        Waits while the machine is short of memory, processes or files. Returns None if a signal came first.
        """
        delays = START_BACKOFF.delays()
        while not self._stop.is_set():
            child = self._take_spare() or await self._start()
            if child is not None:
                child.take_role(number, self._command.role(number))
                self._starting.start(self._until_ready(child))
                return child
            with suppress(TimeoutError):
                async with asyncio.timeout(next(delays)):
                    await self._stop.wait()
        return None

    def keep_spares(self) -> None:
        """A job has crashed its process: have spare processes ready for some time.

        They start when no other process is starting: they must not slow down the one that takes over now.
        """
        now = time.monotonic()
        self._spares_from, self._spares_until = now + SPARE_DELAY_SECONDS, now + SPARE_SECONDS
        self._changed.set()

    def stop(self) -> None:
        """The supervisor stops: spare processes end now."""
        self._changed.set()

    async def run(self) -> None:
        """Keep spare processes while they are wanted."""
        try:
            while not self._stop.is_set():
                self._changed.clear()
                now = time.monotonic()
                pause = self._spares_until - now if now < self._spares_until else None
                if pause is None:
                    await self._end_spares()
                elif len(self._spares) < SPARE_PROCESS_COUNT and not self._starting.tasks:
                    pause = self._spares_from - now
                    if pause <= 0:
                        spare = await self._start()
                        self._spares += [spare] if spare is not None else []
                        pause = SPARE_DELAY_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
        finally:
            await self._end_spares()

    async def _until_ready(self, child: WorkerProcess) -> None:
        try:
            await first_of(child.ready.wait(), child.process.wait())
        finally:
            self._spares_from = time.monotonic() + SPARE_DELAY_SECONDS
            # The task itself ends a moment later.
            asyncio.get_running_loop().call_soon(self._changed.set)

    def _take_spare(self) -> WorkerProcess | None:
        """The spare process that has had the most time to start."""
        while self._spares:
            spare = self._spares.pop(0)
            self._changed.set()
            if spare.process.returncode is None:
                return spare
            spare.close()
        return None

    async def _start(self) -> WorkerProcess | None:
        """A new process without a role; None if the machine is short of something."""
        try:
            child = await WorkerProcess.start(self._command, self._slots)
        except OSError as error:
            if not self._short:
                log.error("cannot start a worker process: %s; trying again until it works", error)
            self._short = True
            return None
        self._short = False
        return child

    async def _end_spares(self) -> None:
        """End the spare processes. They have run nothing, so nothing is lost."""
        for spare in self._spares:
            spare.send_signal(signal.SIGTERM)
        self._ending += self._spares
        self._spares.clear()
        while self._ending:
            spare = self._ending[0]
            try:
                async with asyncio.timeout(SPARE_STOP_SECONDS):
                    await spare.process.wait()
            except TimeoutError:
                spare.send_signal(signal.SIGKILL)
                await spare.process.wait()
            self._ending.remove(spare)
            spare.close()
