"""The worker: the queue runners of one process, started in order and stopped in order.

Each queue has a runner: leases decide which partitions it reads, a fetcher fills the prefetch buffer, slots
run the jobs, a settler for each partition writes the outcomes, a promoter moves due jobs. All of them share
one listener for wake-ups and, without a supervisor, one heartbeat.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

import msgspec

from qbull.config import shortest_min_idle
from qbull.core.demand import WorkerOffer
from qbull.core.limits import declared_values
from qbull.core.sharing import Sharing
from qbull.environment import resource_directory
from qbull.errors import MAX_DELAY_SECONDS, ServerError
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.workers import RegisteredWorker, new_worker_id
from qbull.worker.actor import all_of, start_actor, stop_actors
from qbull.worker.argument_sweeper import ArgumentSweeper
from qbull.worker.assignment import Assignment, check_static_sharing
from qbull.worker.blocked_worker import BlockedWorker
from qbull.worker.declare import ScheduleDeclarer
from qbull.worker.grace_period import GracePeriod
from qbull.worker.host_tokens import HostTokens
from qbull.worker.isolation import Isolation
from qbull.worker.loop_limits import LOOP_WARNING_SECONDS
from qbull.worker.loop_watch import LoopWatch
from qbull.worker.outage import Outage
from qbull.worker.process.channel import WorkerReady
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.heartbeat import Heartbeat, HeartbeatThread
from qbull.worker.process.usage import UsageMeter
from qbull.worker.publish import TaskPublisher
from qbull.worker.queue_runner import QueueRunner
from qbull.worker.shared_call import SharedCall
from qbull.worker.shared_limits import SharedLimits
from qbull.worker.supervisor_link import SupervisorLink
from qbull.worker.wakeups import WakeUpListener
from qbull.worker.wiring import LoopFence, WorkerWiring


class Supervision(msgspec.Struct, frozen=True):
    """The things that a supervisor gives to its worker process. It also sends heartbeats on its behalf."""

    worker: str
    """The id of the worker."""
    crash_board: CrashBoard
    loop_warning: float = LOOP_WARNING_SECONDS
    """Seconds for which a task may block the event loop before the worker warns."""
    link: SupervisorLink | None = None
    """The control channel to the supervisor."""


class Worker:
    """Runs jobs: `async with worker:` starts it, and the end of the block stops it.

    Args:
        make_store: Opens a connection; heartbeats use one of their own.
        assignments: The queues to serve, with their tasks.
        sharing: How workers share the partitions of a queue.
        min_idle: Seconds without a heartbeat after which a worker counts as dead, unless a queue says less.
        supervision: Given if a supervisor has started this process.
        alongside: Duties that run while the worker runs.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        assignments: Sequence[Assignment],
        *,
        sharing: Sharing | None = None,
        min_idle: float = 30.0,
        supervision: Supervision | None = None,
        alongside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self.id = supervision.worker if supervision is not None else new_worker_id()
        self._started_ms = int(time.time() * 1000)
        self._make_store = make_store
        self._store = make_store().without_retry
        self._assignments = assignments
        self._limits = {limit.limit for each in assignments for limit in each.limits}
        self._outage = Outage()
        self._supervised = supervision is not None
        self._heartbeat = None if self._supervised else HeartbeatThread(self._make_heartbeat)
        self._alongside = alongside
        # All queues of a worker belong to one app.
        self._lifespans = next((each.lifespans for each in assignments if each.lifespans), None)
        self._lifespans_started = False
        self._debug = any(each.debug for each in assignments)
        self._offer = next((each.offer for each in assignments), WorkerOffer())
        check_static_sharing(assignments, sharing or Sharing())
        self._wiring = WorkerWiring(
            self._store,
            self.id,
            sharing or Sharing(),
            shortest_min_idle([each.settings for each in assignments], min_idle),
            self._outage,
            Isolation(),
            supervision.crash_board if supervision is not None else None,
            LoopFence(),
            supervision.link if supervision is not None else None,
            SharedCall(self._register),
            SharedCall(self._store.workers),
            SharedLimits(self._store, self.id, self._outage),
            HostTokens(self._offer.resources, resource_directory()),
        )
        self._runners: list[QueueRunner] = []
        slot = 0
        for assignment in assignments:
            self._runners.append(QueueRunner(self._wiring, assignment, slot))
            slot += board_slots_for(assignment.settings.concurrency)
        self._declarers = [ScheduleDeclarer(self._wiring, each) for each in assignments]
        self._publishers = [TaskPublisher(self._store, each, self._outage) for each in assignments]
        self._loop_watch = LoopWatch(
            self._wiring.crash_board,
            lambda: [slot for runner in self._runners for slot in runner.slots],
            BlockedWorker(self.id, make_store, self._wiring.loop_fence, self._runners),
            self._wiring.register,
            self._loop_warning(supervision),
        )
        self._started: list[QueueRunner] = []
        self._actors: list[asyncio.Task[None]] = []
        self._stopped = False

    def _loop_warning(self, supervision: Supervision | None) -> float:
        """Seconds for which a task may block the event loop. A breakpoint may block it for hours."""
        if self._debug:
            return MAX_DELAY_SECONDS
        return supervision.loop_warning if supervision is not None else LOOP_WARNING_SECONDS

    async def start(self) -> None:
        """Start to run jobs. Raises if the server cannot be used, or if a lifespan fails."""
        self._wiring.tokens.open()
        if self._lifespans is not None:
            await self._lifespans.start(cpu=self._debug)
            self._lifespans_started = True
        await all_of(
            self._taken(partial(self._store.register, each.settings, sorted(each.tasks)))
            for each in self._assignments
        )
        await self._taken(partial(self._wiring.limits.declare, self._limits))
        if self._heartbeat is not None:
            await self._heartbeat.start()
        self._actors.append(start_actor(WakeUpListener(self._store, self._outage, self._on_wake_up).run))
        for declarer in self._declarers:
            await self._taken(declarer.tick)
        await all_of(self._taken(publisher.publish) for publisher in self._publishers)
        self._actors += [start_actor(declarer.run) for declarer in self._declarers]
        self._actors += [start_actor(publisher.run) for publisher in self._publishers]
        self._actors += [
            start_actor(ArgumentSweeper(self._store, each.settings, each.arguments).run)
            for each in self._assignments
            if each.arguments is not None
        ]
        await all_of(self._taken(runner.histograms.open) for runner in self._runners)
        self._loop_watch.start()
        # Not earlier: from now on the other workers leave its share to it.
        await self._taken(self._wiring.register)
        await all_of(self._start_runner(runner) for runner in self._runners)
        self._actors += [start_actor(duty) for duty in self._alongside]
        link = self._wiring.link
        if link is not None:
            if link.quarantine is not None:
                self._actors.append(start_actor(link.quarantine.run))
            link.channel.send(WorkerReady())

    async def _start_runner(self, runner: QueueRunner) -> None:
        self._started.append(runner)
        await runner.start()

    async def _taken(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeat the call while the server is unavailable: for ever in a worker process, else for some
        seconds.
        """
        if not self._supervised:
            await self._store.retrying(call)
            return

        async def opened() -> None:
            await self._store.open()
            await call()

        await self._outage.retry_until_up(opened, refusals=False)

    async def stop(self, grace: float = 25.0) -> None:
        """Fetch nothing more, let running jobs end within `grace` seconds, and release the rest."""
        await self._stop(GracePeriod(grace))

    async def leave(
        self, grace: float, announce: Callable[[float | None], None], stop: asyncio.Event
    ) -> None:
        """Stop because a successor runs: running jobs end here, without a limit unless a function hangs.

        Args:
            grace: Seconds that jobs without a timeout have if a function hangs, and all jobs after `stop`.
            announce: Receives the limit in seconds.
            stop: Set if the whole pod stops meanwhile.
        """
        seconds = None
        if any(runner.hung for runner in self._started):
            seconds = max(runner.time_left(grace) for runner in self._started)
        announce(seconds)
        grace_period = GracePeriod(inf if seconds is None else seconds)

        async def hurry() -> None:
            await stop.wait()
            grace_period.shorten(grace)

        hurrying = asyncio.create_task(hurry())
        try:
            await self._stop(grace_period)
        finally:
            hurrying.cancel()

    @property
    def started_jobs(self) -> int:
        """The number of jobs that this process has started."""
        return sum(runner.histograms.started_jobs for runner in self._runners)

    async def _stop(self, grace_period: GracePeriod) -> None:
        if self._stopped:
            return
        self._stopped = True
        for runner in self._started:
            runner.start_no_more()
        await self._loop_watch.stop()
        await stop_actors(self._actors)
        await asyncio.gather(*(runner.stop(grace_period) for runner in self._started))
        if not self.abandoned:
            await self._wiring.limits.close()
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        if not self.abandoned and not any(runner.buffer.offered for runner in self._started):
            with suppress(ServerError):
                await self._store.forget_worker(self.id, certain=True)
        if self._lifespans is not None and self._lifespans_started:
            await self._lifespans.stop()
        await self._store.close()

    @property
    def abandoned(self) -> int:
        """The number of jobs that still run after `stop()`. Others get them when the process has ended."""
        return sum(runner.abandoned for runner in self._started)

    async def __aenter__(self) -> Worker:
        try:
            await self.start()
        except BaseException:
            # Nobody else could stop the parts that have started.
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def drain(self) -> None:
        """Run until the queues are empty, delayed jobs and retries included.

        Jobs behind a halted lane stay, and so do jobs of a paused queue that have not started.
        """
        quiet = False
        while True:
            left = 0
            for runner in self._runners:
                await runner.flush()
                for count in await self._store.retrying(partial(self._counts, runner)):
                    left += count.active if runner.paused else count.runnable
            if not left:
                moved = await self._moved()
                if moved is None or (quiet and not moved):
                    return
                # Jobs that were freed just before this were not counted: look once more.
                quiet = not moved
            await asyncio.sleep(0.02)

    async def _counts(self, runner: QueueRunner) -> list[inspect.Counts]:
        return await inspect.counts(await self._store.partitions(runner.settings))

    async def _moved(self) -> int | None:
        """The number of jobs moved between partitions; None if no queue is being repartitioned."""
        moved = [
            await PartitionMoves(self._store, assigned.settings, assigned.durability).all_steps()
            for assigned in self._assignments
        ]
        return None if moved.count(None) == len(moved) else sum(count or 0 for count in moved)

    async def _register(self) -> None:
        queues = {runner.settings.name: runner.serving() for runner in self._runners}
        member = RegisteredWorker(
            socket.gethostname(),
            os.getpid(),
            self._wiring.sharing.pod or self.id,
            queues,
            version=sys.modules["qbull"].__version__,
            started_ms=self._started_ms,
            limits={limit.name: declared_values(limit) for limit in self._limits},
            labels=dict(self._offer.labels),
            resources=dict(self._offer.resources),
        )
        await self._store.register_worker(self.id, member, self._wiring.min_idle)

    def _make_heartbeat(self) -> tuple[Store, Heartbeat]:
        store = self._make_store().without_retry
        queues = [assignment.settings for assignment in self._assignments]
        meter = UsageMeter(lambda: {self.id: os.getpid()})
        return store, Heartbeat(store, queues, lambda: [self.id], self._wiring.min_idle, Outage(), meter)

    def _on_wake_up(self, base: str, word: str) -> None:
        self._wiring.limits.on_wake_up(base, word)
        for runner in self._runners:
            runner.on_wake_up(base, word)
        if word in ("workers", ""):
            for declarer in self._declarers:
                declarer.wake_up()
