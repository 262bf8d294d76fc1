"""Schedules on the server: the location of each one, and its plan.

A schedule's plan is in the partition that its runs go to, so that "this run has not started yet" and "enqueue
it" are one script (tick.py). The app's registry names that partition. The two are on different slots, so they
are written one after the other, and each step may be repeated: the plan is the truth, the registry only finds
it.

A schedule must never have two plans, or a run would start in both. So a plan that moves names its destination
before it is written there, and every process that meets it on the way finishes the move first. A deleted plan
leaves a tombstone for an hour: its revision, so that a late writer cannot revive it, and its new location if
it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from qbull.codecs.schedules import ScheduleCodec
from qbull.config import QueueSettings
from qbull.core.layout import Layout, generation_of
from qbull.core.route import digest
from qbull.core.schedule import Schedule
from qbull.core.schedule_state import (
    PlanChange,
    PlanOrigin,
    SchedulePlan,
    declare_schedule,
    fields_of,
    plan_of,
)
from qbull.errors import NotFound, ServerError
from qbull.store.read import inspect
from qbull.store.retry import StoreVerbs, idempotent

if TYPE_CHECKING:
    from qbull.store.store import Store

SCHEDULE_BATCH_SIZE = 50
"""Maximum number of schedules in one call."""
MAX_UPDATE_ATTEMPTS = 100


class ScheduleLocation(NamedTuple):
    queue: str
    partition: int

    def __str__(self) -> str:
        return f"{self.queue}/{self.partition}"


class StoredSchedule(NamedTuple):
    """A schedule with its location and plan, and the server's time when it was read."""

    location: ScheduleLocation
    plan: SchedulePlan
    now_ms: int


class PartitionPlans(NamedTuple):
    """The plans in a partition, the server's time, and the seconds until the next one is due."""

    now_ms: int
    wait: float | None
    plans: dict[str, SchedulePlan]
    tombstones: dict[str, SchedulePlan]
    """Removed schedules: their revision, and the location that they have moved to."""
    unreadable: dict[str, tuple[int, str]]
    """Revision and error of each plan that cannot be read."""

    def rev(self, name: str) -> int:
        if name in self.unreadable:
            return self.unreadable[name][0]
        return (self.plans.get(name) or self.tombstones.get(name) or SchedulePlan()).rev


class ScheduleStore(StoreVerbs):
    """The schedules of one app, in the partitions of their queues.

    Args:
        store: The store of the app.
        codec: Protects the definitions that are written. They are read as they are stored.
    """

    def __init__(self, store: Store, codec: ScheduleCodec | None = None) -> None:
        super().__init__(store)
        self._codec = codec or ScheduleCodec()

    # Locations.

    @idempotent
    async def find(self, name: str) -> StoredSchedule | None:
        """A schedule with its location and plan, even while it moves; None if there is none of this name."""
        location = await self.location(name)
        for _ in range(MAX_UPDATE_ATTEMPTS):
            if location is None:
                break
            look = await self.read(location, [name])
            _refuse_unreadable(name, look)
            if name in look.plans:
                return StoredSchedule(location, look.plans[name], look.now_ms)
            before, trace = location, look.tombstones.get(name)
            moved_to = trace.moving if trace is not None else None
            location = _location(moved_to) if moved_to is not None else await self.location(name)
            if location == before:
                break
        return None

    @idempotent
    async def location(self, name: str) -> ScheduleLocation | None:
        """The location according to the registry."""
        found = await self._store.server.call("HGET", self._store.names.schedules, name)
        return _location(found.decode()) if found is not None else None

    @idempotent
    async def locations(self) -> dict[str, ScheduleLocation]:
        """The locations of all schedules, by name."""
        found: dict[str, ScheduleLocation] = {}
        cursor = b"0"
        while True:
            cursor, flat = await self._store.server.call(
                "HSCAN", self._store.names.schedules, cursor, "COUNT", 500
            )
            for name, location in zip(flat[::2], flat[1::2], strict=True):
                found[name.decode()] = _location(location.decode())
            if cursor == b"0":
                return dict(sorted(found.items()))

    async def unknown(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """The schedules that the server does not have as the code declares them."""
        wanted = {schedule.name: schedule for schedule in schedules}
        locations: dict[ScheduleLocation, list[str]] = {}
        for names in in_batches(list(wanted)):
            values = await self._store.server.call("HMGET", self._store.names.schedules, *names)
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    locations.setdefault(_location(value.decode()), []).append(name)
        for location, there in locations.items():
            for names in in_batches(there):
                for name, plan in (await self.read(location, names)).plans.items():
                    code = self._codec.opened_plan(plan).code
                    if code == wanted[name] and location.queue == wanted[name].queue:
                        del wanted[name]
        return list(wanted.values())

    @idempotent
    async def read(self, location: ScheduleLocation, names: Sequence[str], *, due: int = 0) -> PartitionPlans:
        """The plans of these schedules, or of up to `due` schedules that are due."""
        reply = await self._store.server.script("schedule_read", self._base(location), due, *names)
        now_ms, wait_ms, *flat = reply
        look = PartitionPlans(now_ms, None if wait_ms < 0 else wait_ms / 1000, {}, {}, {})
        for packed, fields in zip(flat[::2], flat[1::2], strict=True):
            name, found = packed.decode(), dict(zip(fields[::2], fields[1::2], strict=True))
            try:
                plan = plan_of(name, found)
            except ValueError as error:
                look.unreadable[name] = int(found.get(b"rev", 0)), str(error)
                continue
            if plan.schedule is not None:
                look.plans[name] = plan
            elif plan.rev:
                look.tombstones[name] = plan
        return look

    # Definitions.

    @idempotent
    async def put(self, schedule: Schedule, origin: PlanOrigin, settings: QueueSettings) -> None:
        """Write a schedule that the code declares or that a user creates at run time."""
        name, layout = schedule.name, await self._store.layout(settings)
        known = await self.find(name)
        if known is not None and known.location.queue != settings.name:
            await self._change(name, known.location, lambda plan, _: _dropped(plan))
            known = None
        if known is None:
            location = ScheduleLocation(settings.name, partition_of_schedule(settings, layout, schedule))
            await self._register(name, location)  # first, so that it can be found whatever happens next
        else:
            location = known.location

        def declare(plan: SchedulePlan, now_ms: int) -> PlanChange | None:
            opened = self._codec.opened_plan(plan)
            return declare_schedule(opened, origin, schedule, now_ms, self._codec.protect)

        there = await self._change(name, location, declare)
        await self._register(name, there or location)
        await self.move_home(there or location, [name], settings, layout)

    async def withdraw(self, name: str, location: ScheduleLocation, origin: PlanOrigin) -> None:
        """Withdraw the schedule of the code or the one made at run time. Without either, it is deleted."""
        if (
            await self._change(
                name, location, lambda plan, now_ms: declare_schedule(plan, origin, None, now_ms)
            )
            is None
        ):
            await self._unregister(name)

    @idempotent
    async def remove(self, name: str) -> None:
        """Remove the definition that was set at run time.

        If there is none, or it cannot be read, remove the whole schedule.
        """
        location = await self.location(name)
        look = await self.read(location, [name]) if location is not None else None
        if location is not None and look is not None and name in look.unreadable:
            await self._write(location, name, look.rev(name), PlanChange(None, drop=True))
        else:
            known = await self.find(name)
            if known is not None and known.plan.own is not None:
                await self.withdraw(name, known.location, "own")
                return
            if known is not None:
                await self._change(name, known.location, lambda plan, _: _dropped(plan))
        await self._unregister(name)

    @idempotent
    async def change(self, name: str, how: Callable[[SchedulePlan, int], PlanChange | None]) -> None:
        """Change the plan. Raises NotFound if there is no schedule of this name."""
        known = await self.find(name)
        if known is None:
            raise NotFound(f'schedule "{name}": not on this server')
        await self._change(
            name,
            known.location,
            lambda plan, now_ms: how(plan, now_ms) if plan.schedule is not None else None,
        )

    async def postpone(self, location: ScheduleLocation, name: str, rev: int, until_ms: int) -> None:
        """Postpone a plan that cannot be read now."""
        await self._write(location, name, rev, PlanChange(until_ms))

    # Moves.

    async def move_home(
        self, location: ScheduleLocation, names: Sequence[str], settings: QueueSettings, layout: Layout
    ) -> None:
        """Move the schedules that belong to another partition now.

        In a partition that accepts no more jobs, a schedule may stay until its last run has ended: that is
        known only there, and the jobs of its runs are moved to their new partition.
        """
        for name, plan in (await self.read(location, names)).plans.items():
            assert plan.schedule is not None
            home = ScheduleLocation(location.queue, partition_of_schedule(settings, layout, plan.schedule))
            if home == location:
                continue
            closed = generation_of(location.partition) != layout.generation
            waits = (
                closed
                and plan.schedule.overlap == "skip"
                and await self._is_running(location, plan, settings)
            )
            if not waits:
                await self.move(name, location, home)

    async def move(self, name: str, location: ScheduleLocation, home: ScheduleLocation) -> None:
        """Move a schedule to its new partition. It pauses on the way, so that no run starts twice."""
        plan = await self._mark(name, location, home)
        if plan is None:
            return  # it is deleted, or another process has moved it
        if plan.moving != str(home):
            elsewhere = _location(plan.moving or "")
            await self.move(name, location, elsewhere)  # one move after the other
            await self.move(name, elsewhere, home)
            return
        # Before the plan is read, so that later changes there are seen.
        there = await self.read(home, [name])
        plan = (await self.read(location, [name])).plans.get(name)
        if plan is None or plan.schedule is None:
            return
        if name not in there.plans:
            rests = plan.next_ms is None or plan.paused_ms is not None
            due_ms = None if rests or plan.next_ms is None else plan.schedule.due(plan.next_ms)
            arrived = fields_of(plan) | {"moving": ""}  # it may have been here before, and left a tombstone
            await self._write(home, name, there.rev(name), PlanChange(due_ms, arrived))
        await self._register(name, home)
        await self._write(location, name, plan.rev, PlanChange(None, {"moving": str(home)}, drop=True))

    async def _mark(
        self, name: str, location: ScheduleLocation, home: ScheduleLocation
    ) -> SchedulePlan | None:
        """Mark the destination, unless there is one already; returns the plan, or None if it is gone."""
        for _ in range(MAX_UPDATE_ATTEMPTS):
            look = await self.read(location, [name])
            plan = look.plans.get(name)
            if plan is None or plan.moving is not None:
                return plan
            await self._write(location, name, plan.rev, PlanChange(None, {"moving": str(home)}))
        raise ServerError(f'schedule "{name}": it changes too fast to be moved; try again')

    async def _is_running(
        self, location: ScheduleLocation, plan: SchedulePlan, settings: QueueSettings
    ) -> bool:
        """Whether the last run has not ended yet."""
        partition = self._store.partition(settings, location.partition)
        found = [await inspect.find(partition, id) for id in (plan.job, plan.manual) if id is not None]
        return any(job is not None and job.state in ("waiting", "delayed", "active") for job in found)

    # Writing.

    async def _change(
        self, name: str, location: ScheduleLocation, how: Callable[[SchedulePlan, int], PlanChange | None]
    ) -> ScheduleLocation | None:
        """Read, compute, and write unless the plan has changed. Returns its location, None if it is gone."""
        for _ in range(MAX_UPDATE_ATTEMPTS):
            look = await self.read(location, [name])
            _refuse_unreadable(name, look)
            plan = look.plans.get(name) or look.tombstones.get(name) or SchedulePlan()
            if plan.moving is not None:
                home = _location(plan.moving)
                await self.move(name, location, home)  # the process that started it may have died
                location = home
                continue
            change = how(plan, look.now_ms)
            if change is None:
                return location
            if await self._write(location, name, plan.rev, change):
                return None if change.drop else location
        raise ServerError(f'schedule "{name}": it changes too fast to be changed; try again')

    async def _write(self, location: ScheduleLocation, name: str, rev: int, change: PlanChange) -> bool:
        due = "" if change.due_ms is None else change.due_ms
        flat = [part for field in change.fields.items() for part in field]
        word = "drop" if change.drop else "put"
        return bool(
            await self._store.server.script(
                "schedule_write", self._base(location), name, rev, due, word, *flat
            )
        )

    async def _register(self, name: str, location: ScheduleLocation) -> None:
        """Write the location to the registry. The plan may have moved on: the last writer must be right."""
        for _ in range(MAX_UPDATE_ATTEMPTS):
            await self._store.server.script("register", self._store.names.schedules, name, str(location))
            trace = (await self.read(location, [name])).tombstones.get(name)
            if trace is None or trace.moving is None:
                return
            location = _location(trace.moving)

    async def _unregister(self, name: str) -> None:
        location = await self.location(name)
        await self._store.server.call("HDEL", self._store.names.schedules, name)
        look = await self.read(location, [name]) if location is not None else None
        if location is not None and look is not None and name in look.plans:
            await self._register(name, location)  # another process has created it again meanwhile

    def _base(self, location: ScheduleLocation) -> str:
        return self._store.names.partition(*location)


def partition_of_schedule(settings: QueueSettings, layout: Layout, schedule: Schedule) -> int:
    """The partition of its runs: that of its key if keys have an order or a limit, else that of its name."""
    keyed = schedule.key is not None and settings.lane_limit and not settings.has_single_lane
    text = schedule.key if keyed and schedule.key is not None else schedule.name
    return layout.home(digest(text))


def in_batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[at : at + SCHEDULE_BATCH_SIZE] for at in range(0, len(names), SCHEDULE_BATCH_SIZE))


def _dropped(plan: SchedulePlan) -> PlanChange | None:
    return PlanChange(None, drop=True) if plan.schedule is not None else None


def _refuse_unreadable(name: str, look: PartitionPlans) -> None:
    if name in look.unreadable:
        raise ServerError(f'schedule "{name}": {look.unreadable[name][1]}')


def _location(text: str) -> ScheduleLocation:
    queue, _, number = text.rpartition("/")
    return ScheduleLocation(queue, int(number))
