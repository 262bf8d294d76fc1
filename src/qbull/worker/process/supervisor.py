"""The supervisor: the parent process of `qbull worker`.

It starts the worker processes and sends heartbeats on their behalf, so that a job which blocks its event loop
does not make its worker look dead. It notices at once when a process dies: it reclaims the deliveries, reads
from the crash board which jobs were running, and starts another process. It runs no jobs itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.store.store import Store
from qbull.worker.actor import first_of, start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.process.blocked_loops import BlockedLoops
from qbull.worker.process.channel import (
    BeCautious,
    LeaveNow,
    Leaving,
    Message,
    QuarantineIdle,
    ReplacementWanted,
    SuspectFound,
    SuspectTaken,
    TimedOutJob,
    WorkerReady,
)
from qbull.worker.process.child import WorkerCommand, WorkerProcess
from qbull.worker.process.crash_board import board_slots_for
from qbull.worker.process.heartbeat import Heartbeat
from qbull.worker.process.quarantine import QuarantineKeeper
from qbull.worker.process.restart_pause import RESTART_BACKOFF, START_FAILED_EXIT_CODE, RestartPause
from qbull.worker.process.service_status import ServiceState
from qbull.worker.process.starter import ProcessStarter
from qbull.worker.process.usage import UsageMeter
from qbull.worker.process.wait_for_server import wait_for_server

log = logging.getLogger("qbull.supervisor")
A = TypeVar("A")

RECLAIM_TIMEOUT_SECONDS = 2.0
"""Seconds in which the deliveries of a process are usually reclaimed.

If a part of a cluster is unavailable, the next process does not wait for it.
"""
SHUTDOWN_RECONNECT_SECONDS = 2.0
"""Seconds in which an unavailable server has to come back while the supervisor stops."""
EXTRA_STOP_SECONDS = 2.0
"""How long a process may take to record outcomes and to end, after its grace period."""
CRASH_SIGNALS = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
"""The signals by which a process ends because of its own code. SIGKILL comes from somebody else."""
CAUTION_SECONDS = 60.0
"""For so long after a job has crashed its process, jobs run in quarantine after their first crash."""
SIGNAL_DEBOUNCE_SECONDS = 0.5
"""SIGTERMs this close together count as one: some senders signal a process and then its whole group."""


class SupervisorSettings(msgspec.Struct, frozen=True):
    """How many processes a supervisor keeps alive, and its times in seconds."""

    processes: int
    grace: float
    """The time that running jobs have to end after a signal."""
    min_idle: float
    """The time without a heartbeat after which a worker counts as dead."""
    confirmed: Mapping[str, Durability | None] = msgspec.field(default_factory=dict)
    """The durability with which the order of each queue is confirmed; None if it is not."""


class Supervisor:
    """Keeps worker processes alive until a signal.

    Args:
        store: The server.
        queues: The queues that the worker processes serve.
        command: How to start a worker process.
        settings: The number of processes, and times.
        alongside: Duties that run while the supervisor runs.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueSettings],
        command: WorkerCommand,
        settings: SupervisorSettings,
        *,
        alongside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self._store = store.without_retry
        self._queues = queues
        self._processes = settings.processes
        self._grace = settings.grace
        self._confirmed = settings.confirmed
        self._outage = Outage()
        self._heartbeat = Heartbeat(
            self._store,
            queues,
            lambda: list(self._children),
            settings.min_idle,
            self._outage,
            UsageMeter(lambda: {id: child.process.pid for id, child in self._children.items()}),
        )
        self._blocked_loops = BlockedLoops(
            self._store, queues, lambda: {id: child.board for id, child in self._children.items()}
        )
        self._alongside = alongside
        self._children: dict[str, WorkerProcess] = {}
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._quarantine = QuarantineKeeper()
        self._cautious_until = 0.0
        self._replacing = asyncio.Lock()
        self._stop = asyncio.Event()
        self._stopped = 0.0
        slots = sum(board_slots_for(queue.concurrency) for queue in queues)
        self._starter = ProcessStarter(command, slots, self._stop)
        self._at_once = False
        self.state_changed = asyncio.Event()

    def state(self) -> ServiceState:
        """The state for systemd and health checks."""
        if self._stop.is_set():
            return "stopping"
        if not self._heartbeat.is_answered():
            return "waiting"
        return "ready" if any(child.ready.is_set() for child in self._children.values()) else "starting"

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
            numbers = [*range(self._processes), None]
            keepers = [asyncio.create_task(self._keep(number)) for number in numbers]
            own = (self._heartbeat.run, self._blocked_loops.run, self._starter.run)
            duties = [start_actor(duty) for duty in (*own, *self._alongside)]
            await asyncio.wait(keepers)
            await asyncio.gather(*keepers)
            while self._cleaning:
                await self._cleaning.pop()
        finally:
            await stop_actors(duties)
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(name)
            await self._store.close()
        return 1 if self._at_once else 0

    async def _keep(self, number: int | None) -> None:
        """Keep one worker process alive until the supervisor is told to stop.

        Without a number it is the quarantine process, which lives while there are suspects.
        """
        pause = RestartPause()
        successor: WorkerProcess | None = None
        while True:
            if number is None:
                await self._or_stop(self._quarantine.wanted.wait())
            child = successor or await self._start(number)
            if child is None:
                return
            ending = asyncio.create_task(self._end_of(child))
            successor = await self._successor_of(child, ending)
            if successor is not None:
                self._cleaning.add(asyncio.create_task(self._see_off(child, ending)))
                continue
            running = await self._see_off(child, ending)
            uptime = time.monotonic() - child.started
            wait = pause.after(ending.result(), uptime, ran_jobs=bool(running))
            if wait and not self._stop.is_set():
                log.warning(
                    "worker processes die before they run a job; starting the next one in %.3g s", wait
                )
                await self._pause(wait)

    async def _successor_of(self, child: WorkerProcess, ending: asyncio.Task[int]) -> WorkerProcess | None:
        """Wait until the process ends or asks for a successor, and start the successor.

        Returns None if the process has ended.

        The process goes on until its successor runs jobs: one that cannot start must not cost capacity.
        """
        await first_of(ending, child.replace.wait())
        delays = RESTART_BACKOFF.delays()
        while not ending.done():
            async with self._replacing:
                successor = await self._start(child.number)
                if successor is None:
                    break
                dying = asyncio.create_task(successor.process.wait())
                await self._or_stop(first_of(dying, ending, successor.ready.wait()))
                if not dying.done():
                    child.channel.send(LeaveNow())
                    return successor
            log.error("worker %s: its successor died before it was ready; trying again", child.id)
            await self._see_off(successor, dying)
            await self._pause(next(delays))
        await asyncio.wait([ending])
        return None

    async def _see_off(
        self, child: WorkerProcess, ending: asyncio.Task[int]
    ) -> Sequence[tuple[str, int, bytes]]:
        """Wait for the end of a process, log it, and reclaim its deliveries. Returns what it was running."""
        code = await ending
        running = child.board.running()
        crashed = not self._stop.is_set() and (code != 0 or bool(running))
        self._log_end(child, code, running)
        self._quarantine.ended(child, running)
        if running and not self._stop.is_set() and (code >= 0 or -code in CRASH_SIGNALS):
            self._be_cautious(child)
        cleaning = asyncio.create_task(self._clean_up(child, running, lost=crashed))
        self._cleaning.add(cleaning)
        await asyncio.wait([cleaning], timeout=2 * RECLAIM_TIMEOUT_SECONDS)
        for done in [task for task in self._cleaning if task.done()]:
            self._cleaning.discard(done)
            await done
        return running

    def _be_cautious(self, crashed: WorkerProcess) -> None:
        """A job has crashed its process: the jobs that ran there must not crash another one."""
        self._starter.keep_spares()
        self._cautious_until = time.monotonic() + CAUTION_SECONDS
        for child in self._children.values():
            child.channel.send(BeCautious(CAUTION_SECONDS))
        if crashed.number is not None:
            self._quarantine.expect()

    def _log_end(self, child: WorkerProcess, code: int, running: Sequence[tuple[str, int, bytes]]) -> None:
        how = f"signal {-code}" if code < 0 else f"code {code}"
        if running and not self._stop.is_set():
            log.error("worker %s crashed: it ended with %s while it ran %d jobs", child.id, how, len(running))
        elif code == -signal.SIGTERM and self._stop.is_set() and not child.ready.is_set():
            return  # It was still starting, so it ended at once.
        elif code not in (0, START_FAILED_EXIT_CODE):
            log.warning("worker %s ended with %s", child.id, how)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _or_stop(self, event: Coroutine[Any, Any, object]) -> None:
        """Wait for an event, or until the supervisor is told to stop."""
        await first_of(event, self._stop.wait())

    async def _start(self, number: int | None) -> WorkerProcess | None:
        """Start a process, or let a spare one take the role. Returns None if a signal came first."""
        child = await self._starter.start(number)
        if child is None:
            return None
        self._children[child.id] = child
        child.listen(self._receive)
        caution = self._cautious_until - time.monotonic()
        if caution > 0:
            child.channel.send(BeCautious(caution))
        what = "quarantine worker" if number is None else "worker"
        log.info("%s %s started, process %d", what, child.id, child.process.pid)
        self._heartbeat.soon()
        return child

    def _receive(self, child: WorkerProcess, message: Message) -> None:
        """Handle a message of a worker process."""
        match message:
            case WorkerReady():
                child.ready.set()
                self.state_changed.set()
                if child.number is None:
                    self._quarantine.ready(child)
            case SuspectFound():
                self._quarantine.found(child, message)
            case SuspectTaken(suspect=suspect):
                self._quarantine.taken(suspect)
            case QuarantineIdle():
                self._quarantine.idle()
            case ReplacementWanted(reason=reason):
                log.info("worker %s asks for a successor: %s", child.id, reason)
                child.replace.set()
            case Leaving(seconds=seconds):
                if seconds is not None:
                    loop = asyncio.get_running_loop()
                    loop.call_later(seconds + EXTRA_STOP_SECONDS, child.send_signal, signal.SIGKILL)
            case TimedOutJob():
                child.timed_out.append(message)
            case _:
                pass

    async def _end_of(self, child: WorkerProcess) -> int:
        """Wait for the end of the process.

        While stopping, pass the signal on and kill the process after the grace.
        """
        ending = asyncio.create_task(child.process.wait())
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ending.done():
            child.send_signal(signal.SIGTERM)
            await asyncio.wait([ending], timeout=self._grace + EXTRA_STOP_SECONDS)
            if not ending.done():
                log.error("worker %s did not stop in time and is killed", child.id)
                child.send_signal(signal.SIGKILL)
        return await ending

    async def _clean_up(
        self, child: WorkerProcess, running: Sequence[tuple[str, int, bytes]], *, lost: bool
    ) -> None:
        """Reclaim the deliveries of a dead process.

        Only the jobs that were running are suspected of the crash.
        """
        await child.end_orphans()
        reclaimer = self._heartbeat.reclaimer
        for job in child.timed_out:
            durability = self._confirmed.get(job.queue)
            await self._until_told(partial(reclaimer.settle_timed_out, job, durability))
        taking = asyncio.create_task(self._until_told(lambda: reclaimer.reclaim(child.id, running)))
        await asyncio.wait([taking], timeout=RECLAIM_TIMEOUT_SECONDS)
        # Its partitions go to other workers now, also while a part of its deliveries is out of reach.
        del self._children[child.id]
        await self._until_told(lambda: self._store.forget_worker(child.id, certain=True, lost=lost))
        taken = await taking
        child.close()
        if taken:
            log.warning(
                "worker %s: %d deliveries were reclaimed, %d of them had started",
                child.id,
                taken,
                len(running),
            )

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
            self.state_changed.set()
            self._stop.set()
            self._starter.stop()

    def _signalled(self, name: signal.Signals) -> None:
        if not self._stop.is_set():
            self.stop()
        elif name == signal.SIGINT or time.monotonic() - self._stopped > SIGNAL_DEBOUNCE_SECONDS:
            self._at_once = True
            for child in self._children.values():
                child.send_signal(signal.SIGKILL)
