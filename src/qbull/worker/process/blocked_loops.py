"""Blocked loops: the supervisor sees that the event loop of a worker process stands still.

It marks the worker in the registry, and other workers read its partitions until the loop runs again. The
process itself does more, in a thread (worker/blocked_worker.py). But code that holds the GIL stops its
threads too, and then only the supervisor can act.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.worker.loop_watch import LOOP_BLOCKED_SECONDS, LOOP_TURN_SECONDS
from qbull.worker.process.crash_board import CrashBoard

log = logging.getLogger("qbull.supervisor")


class BlockedLoops:
    """For the worker processes of one supervisor.

    Args:
        store: The server.
        boards: Returns the crash boards of the workers that live, by worker.
    """

    def __init__(self, store: Store, boards: Callable[[], Mapping[str, CrashBoard]]) -> None:
        self._store = store
        self._boards = boards
        self._late: set[str] = set()
        """Workers whose loop was late at the last look."""
        self._blocked: set[str] = set()

    async def run(self) -> None:
        """Look at the loops again and again."""
        while True:
            await asyncio.sleep(LOOP_TURN_SECONDS)
            late = {worker for worker, board in self._boards().items() if _is_late(board)}
            # The supervisor itself may have been suspended: the loop has to be late twice.
            for worker in (late & self._late) - self._blocked:
                await self._mark(worker, blocked=True)
            for worker in self._blocked - late:
                await self._mark(worker, blocked=False)
            self._late = late

    async def _mark(self, worker: str, *, blocked: bool) -> None:
        try:
            marked = await self._store.mark_blocked(worker, blocked=blocked)
        except ServerError:
            # The next look tries again. Others log the outage.
            return
        if not blocked:
            self._blocked.discard(worker)
        elif marked:
            self._blocked.add(worker)
            log.warning(
                "worker %s: its event loop is blocked; other workers read its partitions until it runs again",
                worker,
            )


def _is_late(board: CrashBoard) -> bool:
    ran_at = board.loop_ran_at
    return ran_at > 0 and time.monotonic() - ran_at > LOOP_BLOCKED_SECONDS
