"""Schedules of an app: what `app.schedules` can do. What the code declares is brought to the server by workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack

from qbull.config import QueueSettings, check_name
from qbull.core.codec import decode_untyped, encode_payload
from qbull.core.cron import in_zone
from qbull.core.ids import new_id, planned_ms_in
from qbull.core.record import State, to_datetime
from qbull.core.schedule import CatchUp, Overlap, Schedule
from qbull.core.schedule_rule import ScheduleOptions, ScheduleRule
from qbull.core.schedule_state import PlanChange, SchedulePlan, pause_plan, resume_plan
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.job import Job
from qbull.store.verbs.declare import ScheduleDeclarations
from qbull.store.verbs.schedules import (
    PartitionPlans,
    ScheduleLocation,
    StoredSchedule,
    in_batches,
    partition_of_schedule,
)
from qbull.store.verbs.schedules import ScheduleStore as Stored
from qbull.store.verbs.tick import ScheduleTicks
from qbull.task import Task

if TYPE_CHECKING:
    from qbull.app import App

A = TypeVar("A")

PREVIEW_COUNT = 5
NOT_YET_DECLARED = "no worker has brought it to the server yet"


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last tick that was fired, or the last run that was asked for. `state` is None where the job is not kept any more."""

    job_id: str
    planned_at: datetime | None
    fired_at: datetime | None
    state: State | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """Everything that is known about a schedule.

    Args:
        name: the name of the schedule.
        queue: the queue of its task.
        task: the name of its task.
        cron: the cron expression, if it has one.
        every: seconds between two runs, if it has no expression.
        tz: the time zone of the expression.
        args: the arguments of the runs.
        key: the key of the runs.
        catch_up: what happens to runs that were missed.
        overlap: what happens if the run before has not ended.
        catch_up_limit: maximum number of missed runs that are caught up.
        jitter: maximum random delay of a run, in seconds.
        start: no run before this time.
        end: no run after this time.
        source: whether the code declares it, or a call at run time.
        paused: whether it is paused.
        next: the next planned times.
        last: the last run.
        fired: number of runs so far.
        skipped: number of runs skipped because of an overlap.
        missed: number of runs that were missed.
        problem: why it cannot run, if so.
    """

    name: str
    queue: str
    task: str
    cron: str | None
    every: float | None
    tz: str
    args: dict[str, Any]
    key: str | None
    catch_up: CatchUp
    overlap: Overlap
    catch_up_limit: int
    jitter: float
    start: datetime | None
    end: datetime | None
    source: Literal["code", "run time"]
    paused: bool
    next: tuple[datetime, ...]
    last: LastRun | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    problem: str | None = None


ScheduleInfos: TypeAlias = list[ScheduleInfo]  # inside the class, "list" is the method
Instants: TypeAlias = list[datetime]


class Schedules:
    """`app.schedules`: look at schedules, and make, run, pause, resume and remove them at run time."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def upsert(
        self,
        name: str,
        task: Task[..., Any] | str,
        *,
        cron: str | None = None,
        args: Mapping[str, Any] | None = None,
        **when: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Make a schedule, or change it: what is said here wins over the code until `remove(name)`.

        `task` is a task, or "queue/task" of one whose code is elsewhere; its arguments are then checked by its worker.
        Besides `cron` and `args` it takes what `@queue.cron` takes.
        """
        rule = ScheduleRule(cron, **when)
        if isinstance(task, str):
            schedule, settings = await self._unchecked(name, task, rule, dict(args or {}))
        else:
            schedule, settings = task.schedule(name, rule, dict(args or {})), task.queue.settings
        known = await self._find(name)
        if known is not None and known.plan.code is not None and known.location.queue != settings.name:
            raise ConfigError(
                f'schedule "{name}": the code of queue "{known.location.queue}" declares it; give this one another name'
            )
        queue = self._app.queues.get(settings.name)
        if queue is not None:
            await self._app._client().router.register(queue.settings, queue.tasks)
        await self._stored.put(schedule, "own", settings)
        return await self.get(name)

    async def list(self) -> ScheduleInfos:
        """All schedules of the server, and those of the code that no worker has brought there yet."""
        places = await self._stored.locations()
        found: ScheduleInfos = []
        for place in sorted(set(places.values())):
            found += await self._infos(place, [name for name, there in places.items() if there == place])
        seen = {info.name for info in found}
        for name in {
            *places,
            *self._app.declared,
        } - seen:  # on the way to another partition, or in the code only
            with suppress(NotFound):
                found.append(await self.get(name))
        return sorted(found, key=lambda info: info.name)

    async def get(self, name: str) -> ScheduleInfo:
        """One schedule. Raises NotFound where there is none of this name."""
        known = await self._find(name)
        for info in await self._infos(known.location, [name]) if known is not None else ():
            return info
        declared = self._app.declared.get(name)
        if declared is None:
            raise await self._unknown(name)
        return _info(
            declared, SchedulePlan(code=declared), await self._now_ms(declared), problem=NOT_YET_DECLARED
        )

    async def preview(self, name: str, count: int = PREVIEW_COUNT) -> Instants:
        """The next planned instants, in the schedule's zone; as if it were not paused."""
        if not isinstance(count, int) or not 1 <= count <= 1000:
            raise ArgumentsError(f"preview({count!r}): give a number of ticks from 1 to 1,000")
        schedule, _ = await self._in_force(name)
        now_ms = await self._now_ms(schedule)
        return [in_zone(planned, schedule.tz) for planned in islice(schedule.ticks(now_ms), count)]

    async def run(self, name: str) -> Job[Any]:
        """Run it now, beside its plan, also while it is paused. Gives the job."""
        schedule, place = await self._in_force(name)
        client = self._app._client()
        queue = self._app.queues.get(schedule.queue)
        if queue is None:
            queue = self._app._undeclared_queue(await self._settings(schedule.queue))
        elif place is None:
            await client.router.register(queue.settings, queue.tasks)
        layout = await client.router.layout(queue.settings)
        number = (
            place.partition if place is not None else partition_of_schedule(queue.settings, layout, schedule)
        )
        partition, id = client.router.partition(queue.settings, number), new_id(number)
        durability = self._app.durability
        server = client.store.confirmed(durability) if durability is not None else None
        ticks = ScheduleTicks(client.store, queue._encode_payload, queue.tasks)
        created = await ticks.fire_now(partition, schedule, id, server)
        return Job(id, created, queue)

    async def pause(self, name: str) -> None:
        """Fire no ticks until `resume(name)`. What is running goes on."""
        await self._change(name, pause_plan)

    async def resume(self, name: str) -> None:
        """Go on with the next tick. Those within the pause are not caught up."""
        await self._change(name, resume_plan)

    async def remove(self, name: str) -> None:
        """Take away what was made at run time. One that the code declares as well is as in the code again."""
        place = await self._stored.location(name)
        if place is None:
            raise await self._unknown(name)
        plan = (await self._look(place, [name])).plans.get(name)
        if plan is not None and plan.own is None and place.queue in await self._served():
            raise ConfigError(
                f'schedule "{name}": the code of queue "{place.queue}" declares it and would bring it back; '
                "pause it, or remove it from the code"
            )
        await self._stored.remove(name)

    # What is asked of the server.

    @property
    def _stored(self) -> Stored:
        return Stored(self._app._client().store)

    async def _find(self, name: str) -> StoredSchedule | None:
        return await self._stored.find(name)

    async def _look(self, place: ScheduleLocation, names: Sequence[str]) -> PartitionPlans:
        return await self._stored.read(place, names)

    async def _change(self, name: str, how: Callable[[SchedulePlan, int], PlanChange | None]) -> None:
        try:
            await self._stored.change(name, how)
        except NotFound:
            schedule = self._app.declared.get(name)
            if schedule is None:
                raise await self._unknown(name) from None
            await self._bring(schedule)
            await self._stored.change(name, how)

    async def _bring(self, schedule: Schedule) -> None:
        """Do for one schedule of the code what a worker would do when it starts."""
        client, queue = self._app._client(), self._app.queues[schedule.queue]
        await client.router.register(queue.settings, queue.tasks)
        declared = ScheduleDeclarations(client.store)
        before = await declared.names(queue.name)
        await declared.remember(queue.name, before | {schedule.name})
        await self._stored.put(schedule, "code", queue.settings)

    async def _in_force(self, name: str) -> tuple[Schedule, ScheduleLocation | None]:
        known = await self._find(name)
        if known is not None and known.plan.schedule is not None:
            return known.plan.schedule, known.location
        if name not in self._app.declared:
            raise await self._unknown(name)
        return self._app.declared[name], None

    async def _infos(self, place: ScheduleLocation, names: Sequence[str]) -> ScheduleInfos:
        served = await self._served()
        settings = await self._settings(place.queue)
        store = self._app._client().store
        tasks = await store.tasks(place.queue)
        found: ScheduleInfos = []
        for some in in_batches(names):
            look = await self._look(place, some)
            for plan in look.plans.values():
                schedule = plan.schedule
                if schedule is not None:
                    problem = _problem(schedule, served, tasks)
                    last = await self._last(settings, plan)
                    found.append(_info(schedule, plan, look.now_ms, last, problem))
        return found

    async def _last(self, settings: QueueSettings, plan: SchedulePlan) -> LastRun | None:
        """The last run: of a tick, or one that was asked for."""
        by_hand = (plan.manual_at_ms or 0) > (plan.fired_at_ms or 0)
        id, at_ms = (plan.manual, plan.manual_at_ms) if by_hand else (plan.job, plan.fired_at_ms)
        if id is None or at_ms is None:
            return None
        there = await self._app._client().find(settings, id)
        job = there[1] if there is not None else None
        error = job.ending.error if job is not None and job.ending is not None else None
        return LastRun(
            id, planned_ms_in(id), to_datetime(at_ms), job.state if job is not None else None, error
        )

    async def _settings(self, queue: str) -> QueueSettings:
        """As the code declares it, else as the server knows it."""
        if queue in self._app.queues:
            return self._app.queues[queue].settings
        store = self._app._client().store
        return await store.settings(queue)

    async def _served(self) -> set[str]:
        """The queues that live workers serve."""
        workers = await self._app._client().store.workers()
        return {queue for worker in workers.values() for queue in worker.queues}

    async def _now_ms(self, schedule: Schedule) -> int:
        """The server's time."""
        return (await self._look(ScheduleLocation(schedule.queue, 0), ())).now_ms

    async def _unchecked(
        self, name: str, path: str, rule: ScheduleRule, args: Mapping[str, Any]
    ) -> tuple[Schedule, QueueSettings]:
        """A task by its name: by its code where this app has it, else as the server knows it."""
        check_name("schedule", name)
        queue_name, _, task = path.rpartition("/")
        owners = [
            queue
            for queue in self._app.queues.values()
            if task in queue.tasks and queue_name in ("", queue.name)
        ]
        if len(owners) == 1:
            spec = owners[0].tasks[task]
            return Task[..., Any](owners[0], spec).schedule(name, rule, args), owners[0].settings
        if not queue_name:
            raise NotFound(f'schedule "{name}": task "{task}": give "queue/task"')
        store = self._app._client().store
        settings = await store.settings(queue_name)
        known = await store.tasks(queue_name)
        if task not in known:
            raise NotFound(
                f'schedule "{name}": queue "{queue_name}" has no task "{task}"; it has: {", ".join(known) or "none"}'
            )
        if settings.needs_key:
            raise ConfigError(
                f'schedule "{name}": queue "{queue_name}" is ordered by key, and only the code of the task can make it; '
                "upsert it from the app that has the task"
            )
        zone = self._app.environment.timezone
        return rule.schedule(name, queue_name, task, encode_payload(task, dict(args)), None, zone), settings

    async def _unknown(self, name: str) -> NotFound:
        names = sorted({*self._app.declared, *await self._stored.locations()})
        some = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
        return NotFound(f'schedule "{name}": there is none of this name; there is: {some or "none"}')


def _problem(schedule: Schedule, served: Collection[str], tasks: Collection[str]) -> str | None:
    if schedule.queue not in served:
        return f'no worker serves queue "{schedule.queue}"'
    if schedule.task not in tasks:
        return f'no worker knows its task "{schedule.task}"'
    return None


def _info(
    schedule: Schedule,
    plan: SchedulePlan,
    now_ms: int,
    last: LastRun | None = None,
    problem: str | None = None,
) -> ScheduleInfo:
    is_paused = plan.paused_ms is not None
    return ScheduleInfo(
        name=schedule.name,
        queue=schedule.queue,
        task=schedule.task,
        cron=schedule.cron,
        every=None if schedule.every_ms is None else schedule.every_ms / 1000,
        tz=schedule.tz,
        args=decode_untyped(bytes(schedule.args)),
        key=schedule.key,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        catch_up_limit=schedule.catch_up_limit,
        jitter=schedule.jitter_ms / 1000,
        start=None if schedule.start_ms is None else in_zone(schedule.start_ms, schedule.tz),
        end=None if schedule.end_ms is None else in_zone(schedule.end_ms, schedule.tz),
        source="code" if plan.own is None else "run time",
        paused=is_paused,
        next=()
        if is_paused
        else tuple(in_zone(at, schedule.tz) for at in islice(schedule.ticks(now_ms), PREVIEW_COUNT)),
        last=last,
        fired=plan.fired,
        skipped=plan.skipped,
        missed=plan.missed,
        problem=problem,
    )
