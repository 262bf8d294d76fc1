"""The reclaimer: take back the deliveries of dead workers, so that other workers run their jobs.

Reclaiming may take long if the server is slow. It never delays heartbeats: they are sent by another task.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from qbull.config import QueueSettings
from qbull.core.durability import Durability
from qbull.core.record import Ending, append_ending
from qbull.errors import NotFound, ServerAway, ServerError
from qbull.store.store import Store
from qbull.store.verbs import limits, shared_limits
from qbull.store.verbs.confirmed_order import settle_confirmed
from qbull.store.verbs.outcomes import JobPosition, PartitionOutcomes
from qbull.worker.process.channel import TimedOutJob

log = logging.getLogger("qbull.worker")


class Reclaimer:
    """For the queues of this process. A worker without a heartbeat for `min_idle` seconds is dead."""

    def __init__(self, store: Store, queues: Sequence[QueueSettings], min_idle: float) -> None:
        self._store = store
        self._queues = queues
        self._min_idle = min_idle

    async def reclaim(self, worker: str, running: Sequence[tuple[str, int, bytes]] | None = None) -> int:
        """Take back all deliveries of a dead worker, and return their number.

        If one node of a cluster is unavailable, the deliveries on the others are reclaimed all the same. The
        error is raised at the end.

        Args:
            worker: The id of the worker.
            running: Queue, partition and position of the jobs that it was running, if somebody saw them. Only
                these are suspected of the crash.
        """
        reclaimed = 0
        failure: ServerError | None = None
        for settings in self._queues:
            try:
                reclaimed += await self._reclaim_queue(worker, settings, running)
            except ServerError as error:
                failure = error
        if failure is not None:
            raise failure
        for limit in await shared_limits.names(self._store):
            await shared_limits.free_slots(self._store, limit, [worker])
        return reclaimed

    async def reclaim_silent(self, worker: str) -> None:
        """Reclaim everything from a worker whose heartbeats have stopped, and forget the worker."""
        log.warning(
            "worker %s has fallen silent: no heartbeat for %g s; reclaiming its deliveries",
            worker,
            self._min_idle,
        )
        reclaimed = await self.reclaim(worker) + await self._reclaim_other_queues(worker)
        await self._store.forget_worker(worker, lost=True)
        log.info("worker %s: %d deliveries were reclaimed", worker, reclaimed)

    async def settle_timed_out(self, job: TimedOutJob, durability: Durability | None = None) -> None:
        """Record that a job timed out, after its function has ended with its process.

        Does nothing if the job is settled.

        Args:
            job: The job and its outcome.
            durability: The durability with which the order of its queue is confirmed; None if it is not.
                Waits a moment for the replicas. The worker that starts the next job of the lane waits for
                them in any case.
        """
        settings = next((queue for queue in self._queues if queue.name == job.queue), None)
        if settings is None:
            return
        position = JobPosition(job.delivery, job.lane, job.number, job.last)
        outcomes = PartitionOutcomes()
        if job.delay_ms is None:
            outcomes.dead(position, job.id, job.record, job.ending)
        else:
            outcomes.delay(position, job.id, job.record, job.delay_ms)
        partition = self._store.partition(settings, job.partition)
        if durability is None:
            await partition.settle(outcomes)
        else:
            await settle_confirmed(partition, self._store.confirmed(durability), outcomes)

    async def partitions_read_by(self, workers: Collection[str]) -> dict[str, set[int]]:
        """The partitions of each queue that these workers read, as they have registered."""
        read: dict[str, set[int]] = {}
        for worker in workers:
            for queue, served in (await self._store.worker(worker)).queues.items():
                read.setdefault(queue, set()).update(served.partitions)
        return read

    async def sweep(self, own: set[str], read: Mapping[str, Collection[int]] | None = None) -> None:
        """Reclaim deliveries of workers that are not in the registry: it may have been lost.

        Args:
            own: The workers of this process.
            read: The partitions to look at, by queue. Looks at all partitions of a queue without any.
        """
        known = own | await self._store.remembered_workers()
        for limit in await shared_limits.names(self._store):
            holders = await shared_limits.slot_holders(self._store, limit)
            await shared_limits.free_slots(self._store, limit, await self._unknown(holders, known))
        for settings in self._queues:
            holders = await limits.slot_holders(self._store, settings.name)
            await limits.free_slots(self._store, settings.name, await self._unknown(holders, known))
            partitions = await self._store.partitions(settings)
            if numbers := read and read.get(settings.name):
                partitions = [partition for partition in partitions if partition.number in numbers]
            streams = await self._store.streams(partitions)
            for stream in (*streams.values(), *map(self._store.unparked_stream, partitions)):
                consumers = await self._store.consumers(stream)
                idle = [worker for worker, ms in consumers.items() if ms > self._min_idle * 1000]
                for worker in await self._unknown(idle, known):
                    reclaimed = await self.reclaim(worker)
                    if reclaimed:
                        log.warning(
                            "worker %s is not in the registry; %d of its deliveries were reclaimed",
                            worker,
                            reclaimed,
                        )

    async def _unknown(self, workers: Collection[str], known: set[str]) -> list[str]:
        """The workers that are not in the registry.

        A sweep takes a while. A worker registers before it takes anything, so the registry is read again
        after the worker was seen.
        """
        if any(worker not in known for worker in workers):
            known |= await self._store.remembered_workers()
        return [worker for worker in workers if worker not in known]

    async def _reclaim_other_queues(self, worker: str) -> int:
        """Reclaim from the queues that only the dead worker served: nobody else knows that it is dead."""
        reclaimed = 0
        own = {settings.name for settings in self._queues}
        for name in sorted((await self._store.worker(worker)).queues.keys() - own):
            try:
                reclaimed += await self._reclaim_queue(worker, await self._store.settings(name))
            except ServerAway:
                raise
            except (NotFound, ServerError):
                # This process has no rights for that queue; the sweep of its own workers finds the
                # deliveries.
                continue
        return reclaimed

    async def _reclaim_queue(
        self, worker: str, settings: QueueSettings, running: Sequence[tuple[str, int, bytes]] | None = None
    ) -> int:
        reclaimed = 0
        failure: ServerError | None = None
        for partition in await self._store.partitions(settings):
            started = None
            if running is not None:
                here = (settings.name, partition.number)
                started = [position for queue, number, position in running if (queue, number) == here]
            more = True
            while more:
                try:
                    answer = await partition.reclaim(
                        worker, _crash_ending(worker, settings), started, self._min_idle / 2
                    )
                except ServerError as error:
                    failure = error
                    break
                reclaimed += answer.deliveries
                more = answer.more
                if answer.dead:
                    log.error(
                        'queue "%s": %d jobs failed permanently: %s',
                        settings.name,
                        answer.dead,
                        _crash_error(settings),
                    )
        if failure is not None:
            raise failure
        await limits.free_slots(self._store, settings.name, [worker])
        return reclaimed


def _crash_error(settings: QueueSettings) -> str:
    often = "once" if settings.max_crashes == 1 else f"{settings.max_crashes} times"
    return f"its worker died {often} while it ran"


def _crash_ending(worker: str, settings: QueueSettings) -> bytes:
    """The attempt that crashed is in the record: the crash has not used it up."""
    return append_ending(Ending(attempt=0, duration_ms=0.0, worker=worker, error=_crash_error(settings)))
