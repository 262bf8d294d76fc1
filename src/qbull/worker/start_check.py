"""Start check: has the job expired, and has its key used up its rate limit?

The partition of the job answers on the server's clock. A queue whose lanes have no rate asks only for jobs
that expire.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from math import inf
from typing import NamedTuple

from qbull.config import QueueSettings
from qbull.core.layout import GENERATION_SPAN_PARTITIONS
from qbull.core.record import crashes_of, created_ms_of, expires_ms, lane_of
from qbull.errors import ServerError
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.worker.current import RunningJob, entry_ms
from qbull.worker.older_starts import OlderStarts
from qbull.worker.outage import Outage

START_LEAD_SECONDS = 0.03
"""Seconds by which a postponed job returns before it may start, so that the way to a worker costs no time."""


class StartDecision(NamedTuple):
    """Whether a job may start now."""

    wait: float | None
    """Seconds for which it is postponed; 0 if it may start now, None if it has expired."""
    by: float = inf
    """Until when it may start, on this machine's monotonic clock."""
    noted: int = 0
    """The rate-limit token that its start has taken, by the server's time; 0 without a rate."""


class StartCheck:
    """For one queue."""

    def __init__(self, settings: QueueSettings, store: Store, outage: Outage) -> None:
        self.rate = settings.lane.rate if settings.lane is not None else None
        self._older_starts = OlderStarts(store, settings)
        self._outage = outage

    async def __call__(self, partition: Partition, job: RunningJob, unused: int = 0) -> StartDecision:
        """Ask for one job. `unused` is a token of an earlier answer that was not used."""
        ends = 0
        # A job that has started before does not expire.
        if job.body.attempt == 1 and not crashes_of(job.record):
            ends = expires_ms(job.body, created_ms_of(job.record) or entry_ms(job.position)) or 0
        lane = lane_of(job.record)
        rate = self.rate if lane else None
        while ends or rate is not None:
            older: list[bytes] = []
            if rate is not None and partition.number >= GENERATION_SPAN_PARTITIONS:
                read = partial(self._older_starts.logs, partition, lane, rate)
                older = await self._outage.retry_until_up(read)
            sent = time.monotonic()
            ask = partial(partition.start, ends, lane, rate, unused, older)
            answer = await self._outage.retry_until_up(ask)
            if answer is None:
                return StartDecision(None)
            wait_ms, unused, left_ms = answer
            # The answer may have taken long. Then it says too little.
            expires = sent + left_ms / 1000 if ends else inf
            if rate is None:
                if time.monotonic() <= expires:
                    return StartDecision(0.0, expires)
                continue
            if not unused:
                return StartDecision(max(wait_ms / 1000 - START_LEAD_SECONDS, 0.001))
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            start = sent + wait_ms / 1000
            if time.monotonic() <= min(start + rate.slack / 2, expires):
                return StartDecision(0.0, min(start + rate.slack, expires), unused)
        return StartDecision(0.0)

    async def return_start(self, partition: Partition, job: RunningJob, noted: int) -> None:
        """Return an unused token to the key. If the server is unavailable, the key has one start less."""
        if noted and self.rate is not None:
            with suppress(ServerError):
                await partition.return_start_token(lane_of(job.record), self.rate, noted)
