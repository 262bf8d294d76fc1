"""A blocked worker: what it gives to others while a task keeps its event loop to itself.

Its running jobs stay: they run. Other workers read its partitions, and the deliveries that it has not started
go to them. A thread of the process does this, because only the process knows which jobs have started, and
which have ended without being settled yet.

The worker must not start such a delivery when its loop runs again. So the thread sets the fence before it
looks which deliveries wait for a slot, and a slot looks at the fence after it has taken a delivery. One of
the two sees the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from qbull.store.delivery import Delivery
from qbull.store.read.inspect import server_time
from qbull.store.read.pending import pending_deliveries
from qbull.store.store import Store
from qbull.worker.prefetch import PrefetchBuffer, delivery_key
from qbull.worker.queue_runner import QueueRunner
from qbull.worker.slot import Slot
from qbull.worker.stack_report import StackSource, answer_questions, partitions_of
from qbull.worker.wiring import LoopFence

log = logging.getLogger("qbull.worker")


class BlockedWorker:
    """For one worker; its method runs in another thread than the worker.

    Args:
        worker: The id of the worker.
        make_store: Opens a connection for the thread.
        fence: Tells the slots which deliveries they must not start.
        runners: The queue runners of the worker.
    """

    def __init__(
        self,
        worker: str,
        make_store: Callable[[], Store],
        fence: LoopFence,
        runners: Sequence[QueueRunner],
    ) -> None:
        self._worker = worker
        self._make_store = make_store
        self._fence = fence
        self._runners = runners

    async def answer_stacks(self, slots: Sequence[Slot], source: StackSource) -> None:
        """Answer where the tasks of running jobs are, as the event loop cannot."""
        if not (partitions := partitions_of(slots)):
            return
        store = self._make_store().without_retry
        try:
            for there in partitions:
                partition = store.partition(there.settings, there.number)
                await answer_questions(self._worker, partition, slots, source)
        finally:
            await store.close()

    async def give_way(self, seconds: float, task: str | None) -> None:
        """Show that the worker is blocked, and let others read its partitions and run its unstarted
        deliveries. May be repeated.

        Args:
            seconds: For how long its event loop has stood still.
            task: The task that blocks it, if it is known.
        """
        shared = [(runner, numbers) for runner in self._runners if (numbers := runner.shared_partitions)]
        store = self._make_store().without_retry
        try:
            since_ms = int((await server_time(store) - seconds) * 1000)
            if not await store.mark_blocked(self._worker, since_ms, [] if task is None else [task]):
                return
            pending: list[tuple[PrefetchBuffer, Delivery]] = []
            for runner, numbers in shared:
                partitions = [store.partition(runner.settings, number) for number in numbers]
                found = await pending_deliveries(store, self._worker, partitions)
                pending += [(runner.buffer, delivery) for delivery in found]
            self._fence.revoked_at = time.monotonic()
            started = {id(runner.buffer): runner.buffer.started() for runner, _ in shared}
            released = 0
            for buffer, delivery in pending:
                if delivery_key(delivery) not in started[id(buffer)]:
                    await delivery.partition.release(self._worker, [delivery.position])
                    released += 1
        finally:
            await store.close()
        if released:
            log.info("worker %s: %d unstarted deliveries were released to others", self._worker, released)
