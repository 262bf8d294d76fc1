"""The worker: one process's lines, put together, started in order and stopped in order.

For each queue a line: leases say which partitions it reads, a fetcher fills a buffer, a runner works through it, a
settler for each partition writes down what became of it, a promoter wakes what is due. For all of them one bell
and, where no parent does it, one beat.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from qbull.core.codec import PAYLOAD_LIMIT_BYTES
from qbull.core.sharing import Sharing
from qbull.errors import ServerError
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.move import PartitionMoves
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.assignment import Assignment
from qbull.worker.declare import ScheduleDeclarer
from qbull.worker.isolation import Isolation
from qbull.worker.outage import Outage
from qbull.worker.process.crash_board import CrashBoard, board_slots_for
from qbull.worker.process.heartbeat import Heartbeat, HeartbeatThread
from qbull.worker.queue_runner import QueueRunner
from qbull.worker.wakeups import WakeUpListener


def new_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Worker:
    """`async with worker:` runs jobs until the block ends. `supervised` is said where a parent beats for it.

    `beside` are duties that go on while it runs.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        assignments: Sequence[Assignment],
        *,
        sharing: Sharing | None = None,
        min_idle: float = 30.0,
        payload_limit: int = PAYLOAD_LIMIT_BYTES,
        id: str | None = None,
        board: CrashBoard | None = None,
        supervised: bool = False,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self.id = id or new_worker_id()
        self._make_store = make_store
        self._store = make_store().without_retry
        self._assignments = assignments
        self._sharing = sharing or Sharing()
        self._min_idle = min_idle
        self._outage = Outage()
        self._beat = None if supervised else HeartbeatThread(self._make_beat)
        self._supervised = supervised
        self._lines: list[QueueRunner] = []
        self._started: list[QueueRunner] = []
        self._declarers = [
            ScheduleDeclarer(self._store, assignment, self._outage) for assignment in assignments
        ]
        self._listening: list[asyncio.Task[None]] = []
        self._beside = beside
        self._stopped = False
        isolation = Isolation()
        slot = 0
        for assignment in assignments:
            self._lines.append(
                QueueRunner(
                    self._store,
                    assignment,
                    self.id,
                    self._sharing,
                    self._outage,
                    isolation,
                    self._enroll,
                    min_idle=min_idle,
                    board=board,
                    first_slot=slot,
                    payload_limit=payload_limit,
                )
            )
            slot += board_slots_for(assignment.settings.concurrency)

    async def start(self) -> None:
        """Begin to run jobs. Raises where the server cannot be used."""
        for assignment in self._assignments:
            await self._taken(partial(self._store.register, assignment.settings, sorted(assignment.tasks)))
        if self._beat is not None:
            await self._beat.start()
        self._listening.append(start_actor(WakeUpListener(self._store, self._outage, self._on_wake_up).run))
        for declarer in self._declarers:
            await self._taken(declarer.tick)
            self._listening.append(start_actor(declarer.run))
        await self._taken(self._enroll)  # not before: from now on the others leave its share to it
        for line in self._lines:
            self._started.append(line)
            await line.start()
        self._listening += [start_actor(duty) for duty in self._beside]

    async def _taken(self, call: Callable[[], Awaitable[object]]) -> None:
        """A process of its own waits for a server that is away; within a program it is said after a while."""
        if not self._supervised:
            await self._store.retrying(call)
            return

        async def opened() -> None:
            await self._store.open()
            await call()

        await self._outage.retry_until_up(opened, refusals=False)

    async def stop(self, grace: float = 30.0) -> None:
        """Fetch no more, let running jobs end within `grace` seconds, write everything down, give the rest back."""
        if self._stopped:
            return
        self._stopped = True
        await stop_actors(self._listening)
        await asyncio.gather(*(line.stop(grace) for line in self._started))
        if self._beat is not None:
            await self._beat.stop()
        with suppress(ServerError):
            await self._store.forget_worker(self.id, certain=True)
        await self._store.close()

    async def __aenter__(self) -> Worker:
        try:
            await self.start()
        except BaseException:  # nobody else could stop what has begun
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def drain(self) -> None:
        """Run until the queues are empty, delayed jobs and retries included.

        Jobs behind a halted lane stay, and those of a paused queue that do not run yet.
        """
        quiet = False
        while True:
            left = 0
            for line in self._lines:
                await line.flush()
                for count in await self._store.retrying(partial(self._counts, line)):
                    left += count.active if line.paused else count.runnable
            if not left:
                moved = await self._moved()
                if moved is None or (quiet and not moved):
                    return
                quiet = not moved  # what was let go just before this was not counted: look once more
            await asyncio.sleep(0.02)

    async def _counts(self, line: QueueRunner) -> list[inspect.Counts]:
        return await inspect.counts(await self._store.partitions(line.settings))

    async def _moved(self) -> int | None:
        """How much was moved on between partitions; None where the number of no queue's partitions was changed."""
        moved = [await PartitionMoves(self._store, line.settings).all_steps() for line in self._lines]
        return None if moved.count(None) == len(moved) else sum(count or 0 for count in moved)

    async def _enroll(self) -> None:
        queues = {line.settings.name: line.serving() for line in self._lines}
        member = RegisteredWorker(socket.gethostname(), os.getpid(), self._sharing.pod or self.id, queues)
        await self._store.register_worker(self.id, member, self._min_idle)

    def _make_beat(self) -> tuple[Store, Heartbeat]:
        store = self._make_store().without_retry
        queues = [assignment.settings for assignment in self._assignments]
        return store, Heartbeat(store, queues, lambda: [self.id], self._min_idle, Outage())

    def _on_wake_up(self, base: str, word: str) -> None:
        for line in self._lines:
            line.on_wake_up(base, word)
        if word in ("workers", ""):
            for declarer in self._declarers:
                declarer.wake_up()
