"""Declare: write the schedules of the code to the server, and keep them there as the code has them.

While two versions of the code run side by side, all workers agree on the one that decides: the newest that a
live worker runs. The worker registry has the version of a queue's schedules, so every worker sees when the
last worker of a version is gone. Schedules that the deciding version does not declare are removed. Schedules
that were created at run time stay.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from contextlib import suppress

from qbull.codecs.schedules import ScheduleCodec
from qbull.core.schedule import Schedule, version_of
from qbull.store.verbs.declare import ScheduleDeclarations
from qbull.store.verbs.schedules import ScheduleStore
from qbull.store.verbs.workers import RegisteredWorker
from qbull.worker.assignment import Assignment
from qbull.worker.wiring import WorkerWiring

log = logging.getLogger("qbull.worker")

DECLARE_POLL_SECONDS = 600.0
"""Seconds between two checks while no worker starts or stops."""
DECLARE_RETRY_SECONDS = 10.0
"""Seconds until the next check if the last one could not finish."""
DECLARE_JITTER_SECONDS = 1.0
"""Workers that start or stop within so many seconds cause one check."""


class ScheduleDeclarer:
    """Declares the schedules of one queue."""

    def __init__(self, wiring: WorkerWiring, assignment: Assignment) -> None:
        store = wiring.store
        self._members = wiring.members
        self._settings = assignment.settings
        self._mine = {schedule.name: schedule for schedule in assignment.schedules}
        self._schedules = ScheduleStore(store, ScheduleCodec(assignment.codecs))
        self._declared = ScheduleDeclarations(store)
        self._outage = wiring.outage
        self._wake_up = asyncio.Event()
        self._deciding: bool | None = None
        self._said: set[str] = set()
        self.version = version_of(assignment.schedules)

    def wake_up(self) -> None:
        """Check soon: a worker has started or stopped."""
        self._wake_up.set()

    async def run(self) -> None:
        wait = DECLARE_POLL_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait * random.uniform(0.9, 1.1)):  # noqa: S311
                    await self._wake_up.wait()
                await asyncio.sleep(DECLARE_JITTER_SECONDS * random.random())  # noqa: S311
            self._wake_up.clear()
            wait = (
                DECLARE_POLL_SECONDS
                if await self._outage.retry_until_up(self.tick)
                else DECLARE_RETRY_SECONDS
            )

    async def tick(self) -> bool:
        """Find out which version decides. If it is this one, write its schedules to the server.

        Returns whether all is done.
        """
        members = await self._members()
        newest = await self._declared.newest(self._settings.name, self._versions(members.values()))
        deciding = newest == self.version
        if not deciding and self._deciding is not False:
            log.info(
                'queue "%s": a newer version of the code decides about its schedules', self._settings.name
            )
        self._deciding = deciding
        return not deciding or await self._bring(members)

    def _versions(self, members: Iterable[RegisteredWorker]) -> list[str]:
        """The versions that live workers run. This one comes first, even if it is not registered yet."""
        serving = [
            member.queues[self._settings.name] for member in members if self._settings.name in member.queues
        ]
        return list(dict.fromkeys([self.version, *(one.schedules for one in serving if one.schedules)]))

    async def _bring(self, members: dict[str, RegisteredWorker]) -> bool:
        name, mine = self._settings.name, self._mine.keys()
        before = await self._declared.names(name)
        if not before | mine:
            return True
        if not mine <= before:  # first, so that the names to clean up are known even after a crash
            await self._declared.remember(name, before | mine)
        for gone in sorted(before - mine):
            known = await self._schedules.find(gone)
            if known is not None and known.location.queue == name:
                await self._schedules.withdraw(gone, known.location, "code")
                log.info('schedule "%s": removed, the code does not have it any more', gone)
        served = {queue for member in members.values() for queue in member.queues}
        changed = await self._schedules.unknown(self._mine.values())
        taken = [one.name for one in changed if not await self._put(one, served)]
        if before != mine:
            await self._declared.remember(name, set(mine))
        return not taken

    async def _put(self, schedule: Schedule, served: set[str]) -> bool:
        known = await self._schedules.find(schedule.name)
        place = known.location if known is not None else None
        if place is not None and place.queue != schedule.queue and place.queue in served:
            if schedule.name not in self._said:
                self._said.add(schedule.name)
                log.error(
                    'schedule "%s": queue "%s" has one of this name too; give one of them another name=…',
                    schedule.name, place.queue,
                )  # fmt: skip
            return False
        await self._schedules.put(schedule, "code", self._settings)
        return True
