"""Tick: start the due runs of a partition's schedules.

The server tells which schedules are due and how long it is until the next one, so nothing is polled and the
clock of this machine does not matter. The worker computes the calendar (core/schedule.py), and the server
decides whether a run is due. If several workers propose the same run, it is enqueued once.

The promoter of a partition sees when its schedules are due and passes that on. A wake-up comes if a schedule
is due sooner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from qbull.codecs.chain import CodecChain
from qbull.codecs.schedules import ScheduleCodec
from qbull.core.schedule import Schedule
from qbull.core.task import TaskSpec
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition
from qbull.store.verbs.schedules import SCHEDULE_BATCH_SIZE, PartitionPlans, ScheduleLocation, ScheduleStore
from qbull.store.verbs.tick import ScheduleTicks, TickResult
from qbull.worker.outage import Outage

log = logging.getLogger("qbull.worker")

UNREADABLE_SCHEDULE_RETRY_MS = 60_000
"""Time until the next look at a schedule that cannot be read."""


class ScheduleRunner:
    """For one partition. `tasks` are those that this worker can run; `codecs` open the
    schedules and protect the payloads of their runs.
    """

    def __init__(
        self,
        store: Store,
        partition: Partition,
        tasks: Mapping[str, TaskSpec],
        outage: Outage,
        codecs: CodecChain | None = None,
    ) -> None:
        self._schedules = ScheduleStore(store)
        self._ticks = ScheduleTicks(store, ScheduleCodec(codecs), tasks)
        self._partition = partition
        self._place = ScheduleLocation(partition.settings.name, partition.number)
        self._tasks = tasks
        self._outage = outage
        self._wake_up = asyncio.Event()
        self._until = float("inf")
        self._said: set[tuple[str, str]] = set()

    def wake_up(self) -> None:
        """Check now: a schedule may be due sooner than expected."""
        self._wake_up.set()

    def expect(self, wait: float | None) -> None:
        """The promoter has seen that a schedule is due in `wait` seconds."""
        if wait is not None and asyncio.get_running_loop().time() + wait < self._until - 0.001:
            self._wake_up.set()

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if self._until == float("inf") else self._until):
                    await self._wake_up.wait()
            self._wake_up.clear()
            wait = await self._outage.retry_until_up(self.tick)
            self._until = float("inf") if wait is None else clock() + wait

    async def tick(self) -> float | None:
        """Start all due runs. Returns the seconds until the next one, None if there is none."""
        while True:
            look = await self._schedules.read(self._place, (), due=SCHEDULE_BATCH_SIZE)
            if not look.plans and not look.unreadable:
                return look.wait
            for ticked in await self._ticks.fire_due(self._partition, look):
                self._say(ticked)
            await self._put_off(look)

    def _say(self, ticked: TickResult) -> None:
        schedule = ticked.schedule
        if ticked.missed:
            log.warning(
                'schedule "%s": %d ticks were missed; catch_up="%s"',
                schedule.name, ticked.missed, schedule.catch_up,
            )  # fmt: skip
        if ticked.skipped:
            log.info('schedule "%s": a tick was skipped, the run before has not ended', schedule.name)
        if ticked.fired and schedule.task not in self._tasks:
            self._say_unknown(schedule)

    def _say_unknown(self, schedule: Schedule) -> None:
        what = (schedule.name, schedule.task)
        if what not in self._said:
            self._said.add(what)
            log.error(
                'schedule "%s": this worker has no task "%s"; its jobs wait for a worker that has it. '
                'Deploy the task, or run "qbull schedules remove %s"', *what, schedule.name,
            )  # fmt: skip

    async def _put_off(self, look: PartitionPlans) -> None:
        for name, (rev, fault) in look.unreadable.items():
            log.error('schedule "%s": %s', name, fault.removeprefix(f'schedule "{name}": '))
            await self._schedules.postpone(self._place, name, rev, look.now_ms + UNREADABLE_SCHEDULE_RETRY_MS)
