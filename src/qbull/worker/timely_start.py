"""Timely start: a job starts within its limits and before it expires, or not at all.

Each limit grants a start that is valid for a moment. If the task does not start in time, all of them are
given back, and the job asks again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from qbull.codecs.offload import StoredResult
from qbull.config import QueueSettings
from qbull.core.task import TaskSpec
from qbull.store.delivery import DeliveredJob
from qbull.store.verbs.partition import EXPIRED_ERROR
from qbull.worker.current import RunningJob
from qbull.worker.decode import CallArguments
from qbull.worker.held_deliveries import HeldDeliveries
from qbull.worker.limited_jobs import LimitedJobs
from qbull.worker.limiter import Limiter
from qbull.worker.shared_limits import LimitStart, give_back
from qbull.worker.slot import Cancelled, StartTooLate
from qbull.worker.start_check import StartCheck
from qbull.worker.wiring import WorkerWiring


class TimelyStart:
    """For one queue.

    Args:
        wiring: The services of the worker.
        settings: The queue.
        deliveries: Releases jobs, and has the settlers.
        limiter: Grants starts if the queue has a rate limit.
        limited: Grants starts of shared limits.
    """

    def __init__(
        self,
        wiring: WorkerWiring,
        settings: QueueSettings,
        deliveries: HeldDeliveries,
        limiter: Limiter,
        limited: LimitedJobs,
    ) -> None:
        self.check = StartCheck(settings, wiring.store, wiring.outage)
        self._deliveries = deliveries
        self._limiter = limiter
        self._limited = limited

    async def run(
        self,
        delivered: DeliveredJob,
        job: RunningJob,
        task: TaskSpec,
        call: CallArguments,
        attempt: Callable[[], Awaitable[bytes | StoredResult]],
    ) -> bytes | StoredResult | None:
        """Check the limits of a job before its attempt, again if it then starts too late.

        Returns None if it was not started. Raises LimitReached if a shared limit has no room.
        """
        delivery, noted, again = delivered.delivery, 0, False
        if self.check.rate is None and not job.body.expires and not task.limits:
            # As a rule only the rate of the queue limits a job, and has a start for it.
            start = self._limiter.start_now()
            if start is not None:
                job.start_by = start.latest
                try:
                    return await attempt()
                except StartTooLate:
                    self._limiter.return_start(start)
        while True:
            answer = await self.check(delivery.partition, job, noted)
            if answer.wait is None:
                job.cancelled = EXPIRED_ERROR
                raise Cancelled(EXPIRED_ERROR)
            if answer.wait > 0:
                settler = self._deliveries.settlers[delivery.partition.number]
                settler.postpone(delivered, math.ceil(answer.wait * 1000))
                return None
            noted = answer.noted
            shared: Sequence[LimitStart] = ()
            try:
                job.start_by = answer.by
                if task.limits:
                    shared = await self._limited.take(delivered, job, task, call, again=again)
                start = await self._limiter.take_start()
            except BaseException:
                give_back(shared)
                await self.check.return_start(delivery.partition, job, noted)
                raise
            if start is None:
                # Another worker may get a start earlier.
                give_back(shared)
                await self.check.return_start(delivery.partition, job, noted)
                self._deliveries.release_rest(delivery)
                return None
            job.start_by = min(job.start_by, start.latest)
            try:
                return await attempt()
            except StartTooLate:
                self._limiter.return_start(start)
                give_back(shared)
                again = True
            finally:
                if shared:
                    self._limited.limits.end(shared, job)
