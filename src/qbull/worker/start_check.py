"""Begin: the last question before a job runs, for those that have one: has it expired, has its key had its starts?

It is asked of the job's partition, on the server's clock. A queue whose lanes have no rate asks only for jobs that expire.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple

from qbull.config import QueueSettings
from qbull.core.record import crashes_of, created_ms_of, expires_ms, lane_of
from qbull.errors import ServerError
from qbull.store.verbs.partition import Partition
from qbull.worker.current import RunningJob, entry_ms
from qbull.worker.outage import Outage

START_LEAD_SECONDS = 0.03
"""Seconds by which a job that was put off is back before it may begin, so that the way there costs it nothing."""


class StartDecision(NamedTuple):
    """Seconds for which it is to be put off, 0 where it may begin now, None where it has expired.

    Where it may: until when, on this machine's steady clock; and how its start was noted, 0 where it was not.
    """

    wait: float | None
    by: float = inf
    noted: int = 0


class StartCheck:
    """For one queue."""

    def __init__(self, settings: QueueSettings, outage: Outage) -> None:
        self.rate = settings.lane.rate if settings.lane is not None else None
        self._outage = outage

    async def __call__(self, partition: Partition, job: RunningJob, unused: int = 0) -> StartDecision:
        """`unused` is how a start was noted that was not made."""
        ends = 0
        if job.body.attempt == 1 and not crashes_of(job.record):  # one that has begun before does not expire
            ends = expires_ms(job.body, created_ms_of(job.record) or entry_ms(job.place)) or 0
        lane = lane_of(job.record)
        rate = self.rate if lane else None
        while ends or rate is not None:
            sent = time.monotonic()
            ask = partial(partition.start, ends, lane, rate, unused)
            wait_ms, unused = await self._outage.retry_until_up(ask)
            if wait_ms < 0:
                return StartDecision(None)
            if rate is None:
                break
            if not unused:
                return StartDecision(max(wait_ms / 1000 - START_LEAD_SECONDS, 0.001))
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            start = sent + wait_ms / 1000
            if time.monotonic() <= start + rate.slack / 2:
                return StartDecision(0.0, start + rate.slack, unused)
        return StartDecision(0.0)

    async def return_start(self, partition: Partition, job: RunningJob, noted: int) -> None:
        """The start of its key is for the next one. Should the server not hear of it, the key has one less."""
        if noted and self.rate is not None:
            with suppress(ServerError):
                await partition.return_start_token(lane_of(job.record), self.rate, noted)
