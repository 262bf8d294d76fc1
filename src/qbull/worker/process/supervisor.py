"""The supervisor: the parent process of `qbull worker`.

It starts the worker processes and sends heartbeats on their behalf, so that a job which blocks its event loop
does not make its worker look dead. It notices at once when a process dies: it reclaims the deliveries, reads
from the crash board which jobs were running, and starts another process. It runs no jobs itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from qbull.config import QueueSettings
from qbull.core.backoff import ExponentialBackoff
from qbull.store.store import Store
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.process.blocked_loops import BlockedLoops
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.heartbeat import Heartbeat
from qbull.worker.process.wait_for_server import wait_for_server
from qbull.worker.worker import new_worker_id

log = logging.getLogger("qbull.supervisor")
A = TypeVar("A")

STABLE_UPTIME_SECONDS = 10.0
"""If a process has lived this long, the next one starts at once. Otherwise the pause grows each time."""
RESTART_BACKOFF = ExponentialBackoff(first_seconds=0.25, max_seconds=30.0)
RECLAIM_TIMEOUT_SECONDS = 2.0
"""Seconds in which the deliveries of a process are usually reclaimed.

If a part of a cluster is unavailable, the next process does not wait for it.
"""
SHUTDOWN_RECONNECT_SECONDS = 2.0
"""Seconds in which an unavailable server has to come back while the supervisor stops."""
EXTRA_STOP_SECONDS = 2.0
"""How long a process may take to record outcomes and to end, after its grace period."""
ORPHAN_TIMEOUT_SECONDS = 10.0
"""How long to wait for the processes of a dead worker to end. After that its jobs go to others anyway."""
SIGNAL_DEBOUNCE_SECONDS = 0.5
"""SIGTERMs this close together count as one: some senders signal a process and then its whole group."""


@dataclass
class WorkerProcess:
    id: str
    process: asyncio.subprocess.Process
    board: CrashBoard
    life: int
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class SupervisorSettings:
    """How many processes a supervisor keeps alive, and its times in seconds."""

    processes: int
    grace: float
    """The time that running jobs have to end after a signal."""
    min_idle: float
    """The time without a heartbeat after which a worker counts as dead."""


class Supervisor:
    """Keeps worker processes alive until a signal.

    Args:
        store: The server.
        queues: The queues that the worker processes serve.
        command: Returns the command line of a worker process, from its number, the id of the worker, and the
            file descriptors of its crash board and of its lifeline.
        settings: The number of processes, and times.
        alongside: Duties that run while the supervisor runs.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueSettings],
        command: Callable[[int, str, int, int], Sequence[str]],
        settings: SupervisorSettings,
        *,
        alongside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self._store = store.without_retry
        self._queues = queues
        self._command = command
        self._processes = settings.processes
        self._grace = settings.grace
        self._outage = Outage()
        self._heartbeat = Heartbeat(
            self._store, queues, lambda: list(self._children), settings.min_idle, self._outage
        )
        self._blocked_loops = BlockedLoops(
            self._store, lambda: {id: child.board for id, child in self._children.items()}
        )
        self._alongside = alongside
        self._children: dict[str, WorkerProcess] = {}
        self._cleaning: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._stopped = 0.0
        # The machine is short of memory, processes or files.
        self._short = False
        self._at_once = False

    async def reach(self) -> bool:
        """Wait for the server before anything starts. Returns False if a signal came first.

        Raises the error of a server that refuses the connection.
        """
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._signalled, name)
        if not await wait_for_server(self._store, self._outage, self._stop):
            return False
        for queue in self._queues:
            await self._until_told(partial(self._store.check_partitions, queue))
        return not self._stop.is_set()

    async def run(self) -> int:
        """Run until a signal, and return the exit code."""
        loop = asyncio.get_running_loop()
        duties: list[asyncio.Task[None]] = []
        try:
            if not await self.reach():
                return 0
            keepers = [asyncio.create_task(self._keep(number)) for number in range(self._processes)]
            duties = [
                start_actor(duty) for duty in (self._heartbeat.run, self._blocked_loops.run, *self._alongside)
            ]
            await asyncio.wait(keepers)
            for task in (*keepers, *self._cleaning):
                await task
        finally:
            await stop_actors(duties)
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(name)
            await self._store.close()
        return 1 if self._at_once else 0

    async def _keep(self, number: int) -> None:
        """Keep one worker process alive until the supervisor is told to stop."""
        quick_deaths = 0
        while not self._stop.is_set():
            child = await self._start_at_last(number)
            if child is None:
                return
            code = await self._end_of(child)
            running = child.board.running()
            crashed = not self._stop.is_set() and (code != 0 or bool(running))
            self._log_end(child, code, running)
            cleaning = asyncio.create_task(self._clean_up(child, running, lost=crashed))
            self._cleaning.add(cleaning)
            await asyncio.wait([cleaning], timeout=2 * RECLAIM_TIMEOUT_SECONDS)
            for done in [task for task in self._cleaning if task.done()]:
                self._cleaning.discard(done)
                await done
            if running or time.monotonic() - child.started >= STABLE_UPTIME_SECONDS:
                # A job is to blame, and it is known which: the others need not wait for a new process.
                quick_deaths = 0
            else:
                quick_deaths += 1
            if quick_deaths > 1 and not self._stop.is_set():
                wait = RESTART_BACKOFF.delay(quick_deaths - 2)
                log.warning(
                    "worker processes die before they run a job; starting the next one in %.3g s", wait
                )
                await self._pause(wait)

    def _log_end(self, child: WorkerProcess, code: int, running: Sequence[tuple[str, int, bytes]]) -> None:
        how = f"signal {-code}" if code < 0 else f"code {code}"
        if running and not self._stop.is_set():
            log.error("worker %s crashed: it ended with %s while it ran %d jobs", child.id, how, len(running))
        elif code != 0:
            log.warning("worker %s ended with %s", child.id, how)

    async def _start_at_last(self, number: int) -> WorkerProcess | None:
        """Start a process; wait while the machine is short of memory, processes or files.

        Returns None if a signal came first.
        """
        delays = RESTART_BACKOFF.delays()
        while not self._stop.is_set():
            try:
                child = await self._start(number)
            except OSError as error:
                if not self._short:
                    log.error("cannot start a worker process: %s; trying again until it works", error)
                self._short = True
            else:
                self._short = False
                return child
            await self._pause(next(delays))
        return None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _start(self, number: int) -> WorkerProcess:
        slots = sum(board_slots_for(queue.concurrency) for queue in self._queues)
        id = new_worker_id()
        with ExitStack() as opened:
            board = CrashBoard.make(slots)
            opened.callback(board.close)
            theirs, ours = os.pipe()
            opened.callback(os.close, ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command(number, id, board.fd, theirs),
                    pass_fds=(board.fd, theirs),
                    stdin=asyncio.subprocess.DEVNULL,
                )
            finally:
                os.close(theirs)
            opened.pop_all()
        child = self._children[id] = WorkerProcess(id, process, board, ours)
        log.info("worker %s started, process %d", id, process.pid)
        self._heartbeat.soon()
        return child

    async def _end_of(self, child: WorkerProcess) -> int:
        """Wait for the end of the process.

        While stopping, pass the signal on and kill the process after the grace.
        """
        ending = asyncio.create_task(child.process.wait())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ending.done():
            _send_signal(child.process, signal.SIGTERM)
            await asyncio.wait([ending], timeout=self._grace + EXTRA_STOP_SECONDS)
            if not ending.done():
                log.error("worker %s did not stop in time and is killed", child.id)
                _send_signal(child.process, signal.SIGKILL)
        return await ending

    async def _clean_up(
        self, child: WorkerProcess, running: Sequence[tuple[str, int, bytes]], *, lost: bool
    ) -> None:
        """Reclaim the deliveries of a dead process.

        Only the jobs that were running are suspected of the crash.
        """
        await self._end_orphans(child)
        taking = asyncio.create_task(
            self._until_told(lambda: self._heartbeat.reclaimer.reclaim(child.id, running))
        )
        await asyncio.wait([taking], timeout=RECLAIM_TIMEOUT_SECONDS)
        # Its partitions go to other workers now, also while a part of its deliveries is out of reach.
        del self._children[child.id]
        await self._until_told(lambda: self._store.forget_worker(child.id, certain=True, lost=lost))
        taken = await taking
        child.board.close()
        os.close(child.life)
        if taken:
            log.warning(
                "worker %s: %d deliveries were reclaimed, %d of them had started",
                child.id,
                taken,
                len(running),
            )

    async def _end_orphans(self, child: WorkerProcess) -> None:
        """End the processes in which the dead worker ran `cpu=True` jobs, before others start these jobs."""
        left = child.board.processes()
        deadline = time.monotonic() + ORPHAN_TIMEOUT_SECONDS
        while left := [pid for pid in left if _kill_group(pid)]:
            if time.monotonic() > deadline:
                log.error(
                    "worker %s: processes %s cannot be killed; their jobs start elsewhere", child.id, left
                )
                return
            await asyncio.sleep(0.01)

    async def _until_told(self, call: Callable[[], Awaitable[A]]) -> A | None:
        """Repeat the call until the server answers.

        On shutdown, try once more and leave the rest to the others.
        """
        calling = asyncio.create_task(self._outage.retry_until_up(call))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([calling, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await asyncio.wait([calling], timeout=SHUTDOWN_RECONNECT_SECONDS)
        if calling.done():
            return await calling
        calling.cancel()
        await asyncio.wait([calling])
        return None

    def stop(self) -> None:
        """Let running jobs end, then stop."""
        if not self._stop.is_set():
            log.info(
                "stopping: running jobs have %.3g s to end; a second signal kills them at once", self._grace
            )
            self._stopped = time.monotonic()
            self._stop.set()

    def _signalled(self, name: signal.Signals) -> None:
        if not self._stop.is_set():
            self.stop()
        elif name == signal.SIGINT or time.monotonic() - self._stopped > SIGNAL_DEBOUNCE_SECONDS:
            self._at_once = True
            for child in self._children.values():
                _send_signal(child.process, signal.SIGKILL)


def _send_signal(process: asyncio.subprocess.Process, name: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(name)


def _kill_group(pid: int) -> bool:
    """Kill a process and everything that it has started. Returns whether anything of it was left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
