"""Blocked loops: the supervisor sees that the event loop of a worker process stands still.

It marks the worker in the registry, and other workers read its partitions until the loop runs again. The
process itself does more, in a thread (worker/blocked_worker.py). But code that holds the GIL stops its
threads too, and then only the supervisor can act.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from qbull.config import QueueSettings
from qbull.core.record import body_of
from qbull.errors import ServerError
from qbull.store.read.inspect import server_time
from qbull.store.read.pending import pending_deliveries
from qbull.store.store import Store
from qbull.worker.loop_limits import LOOP_BLOCKED_SECONDS, LOOP_TURN_SECONDS
from qbull.worker.process.crash_board import CrashBoard

log = logging.getLogger("qbull.supervisor")

MAX_NAMED_TASKS = 5
"""Tasks that are named if nobody knows which of them blocks a worker."""


class BlockedLoops:
    """For the worker processes of one supervisor.

    Args:
        store: The server.
        queues: The queues that the workers serve.
        boards: Returns the crash boards of the workers that live, by worker.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[QueueSettings],
        boards: Callable[[], Mapping[str, CrashBoard]],
    ) -> None:
        self._store = store
        self._queues = {queue.name: queue for queue in queues}
        self._boards = boards
        self._late: set[str] = set()
        """Workers whose loop was late at the last look."""
        self._blocked: set[str] = set()

    async def run(self) -> None:
        """Look at the loops again and again."""
        while True:
            await asyncio.sleep(LOOP_TURN_SECONDS)
            boards = self._boards()
            late = {worker for worker, board in boards.items() if _is_late(board)}
            # The supervisor itself may have been suspended: the loop has to be late twice.
            for worker in (late & self._late) - self._blocked:
                with suppress(ServerError):  # The next look tries again. Others log the outage.
                    await self._mark(worker, boards[worker])
            for worker in self._blocked - late:
                with suppress(ServerError):
                    await self._store.mark_blocked(worker, 0)
                    self._blocked.discard(worker)
            self._late = late

    async def _mark(self, worker: str, board: CrashBoard) -> None:
        seconds = time.monotonic() - board.loop_ran_at
        since_ms = int((await server_time(self._store) - seconds) * 1000)
        tasks = await self._running_tasks(worker, board)
        if await self._store.mark_blocked(worker, since_ms, tasks):
            self._blocked.add(worker)
            log.warning(
                "worker %s: its event loop is blocked while it runs %s; "
                "other workers read its partitions until it runs again",
                worker,
                " or ".join(tasks) or "no job",
            )

    async def _running_tasks(self, worker: str, board: CrashBoard) -> list[str]:
        """The tasks that run in a worker. One of them blocks it."""
        running = board.running()
        partitions = {
            (queue, number): self._store.partition(self._queues[queue], number)
            for queue, number, _ in running
            if queue in self._queues
        }
        found = await pending_deliveries(self._store, worker, list(partitions.values()))
        started = {(queue, number, position) for queue, number, position in running}
        tasks = {
            body_of(delivery.job(0).record).task
            for delivery in found
            if (delivery.partition.settings.name, delivery.partition.number, delivery.position) in started
        }
        return sorted(tasks)[:MAX_NAMED_TASKS]


def _is_late(board: CrashBoard) -> bool:
    ran_at = board.loop_ran_at
    return ran_at > 0 and time.monotonic() - ran_at > LOOP_BLOCKED_SECONDS
