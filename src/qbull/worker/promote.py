"""Promote: move delayed jobs to ready when their time has come.

The server says how long it is until the next one is due, so there is nothing to poll. A bell rings when a job
is added that is due sooner; and should a bell be lost, each partition is looked at every few seconds all the
same.
"""

from __future__ import annotations

import asyncio

from qbull.store.verbs.partition import MAX_JOBS_PER_CALL, Partition
from qbull.worker.actor import start_actor, stop_actors
from qbull.worker.outage import Outage
from qbull.worker.tick import ScheduleRunner

PROMOTE_POLL_SECONDS = 10.0


class Promoter:
    """For one partition.

    `safety` is the longest time between two looks; `ticker` waits for its schedules meanwhile.
    """

    def __init__(self, partition: Partition, outage: Outage, safety: float, ticker: ScheduleRunner) -> None:
        self._partition = partition
        self._outage = outage
        self._safety = safety
        self._ticker = ticker
        self._wake_up = asyncio.Event()

    def wake_up(self) -> None:
        self._wake_up.set()

    async def run(self) -> None:
        ticking = start_actor(self._ticker.run)
        try:
            await self._promote()
        finally:
            await stop_actors([ticking])

    async def _promote(self) -> None:
        while True:
            self._wake_up.clear()
            moved, wait, tick = await self._outage.retry_until_up(self._partition.promote)
            self._ticker.expect(tick)
            if moved >= MAX_JOBS_PER_CALL:
                continue
            try:
                async with asyncio.timeout(self._safety if wait is None else min(wait, self._safety)):
                    await self._wake_up.wait()
            except TimeoutError:
                pass
