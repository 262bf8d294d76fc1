"""Schedules of an app: the methods of `app.schedules`.

Workers write the schedules that the code declares to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

from msgspec.structs import fields

from qbull.codecs.schedules import ScheduleCodec
from qbull.config import QueueSettings
from qbull.core.codec import encode_payload
from qbull.core.cron import in_zone
from qbull.core.ids import check_name, new_id, planned_ms_in
from qbull.core.record import to_datetime
from qbull.core.schedule import Schedule
from qbull.core.schedule_info import PREVIEW_COUNT, LastRun, ScheduleInfo, schedule_info
from qbull.core.schedule_rule import ScheduleOptions, ScheduleRule
from qbull.core.schedule_runs import PastRun, read_runs
from qbull.core.schedule_state import PlanChange, SchedulePlan, pause_plan, resume_plan
from qbull.errors import ArgumentsError, ConfigError, NotFound
from qbull.job import Job
from qbull.store.audit import audited, note, of_schedules
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

NOT_YET_DECLARED = "no worker has written it to the server yet"
_NOT_IN_THE_LOG = ("name", "queue", "task", "args", "key")
"""Fields of a schedule that the audit log has elsewhere, or that may show arguments."""


PastRuns: TypeAlias = list[PastRun]
ScheduleInfos: TypeAlias = list[ScheduleInfo]  # inside the class, "list" is the method
Instants: TypeAlias = list[datetime]


class Schedules:
    """`app.schedules`: look at schedules, and make, run, pause, resume and remove them at run time."""

    def __init__(self, app: App) -> None:
        self._app = app

    @audited("put schedule", of_schedules)
    async def upsert(
        self,
        name: str,
        task: Task[..., Any] | str,
        *,
        cron: str | None = None,
        args: Mapping[str, Any] | None = None,
        **when: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Make or change a schedule. It wins over the code until `remove(name)`.

        Args:
            name: the name of the schedule.
            task: a task, or "queue/task" for one whose code is elsewhere; then its worker checks the
                arguments.
            cron: the cron expression; or None with `every`.
            args: the arguments of the runs, by name.
            rule: `every`, `tz`, `catch_up`, `catch_up_limit`, `overlap`, `jitter`, `start` and `end`, as for
                `@queue.cron`.
        """
        rule = ScheduleRule(cron, **when)
        if isinstance(task, str):
            schedule, settings = await self._unchecked(name, task, rule, dict(args or {}))
        else:
            schedule, settings = task.schedule(name, rule, dict(args or {})), task.queue.settings
        known = await self._find(name)
        if known is not None and known.plan.code is not None and known.location.queue != settings.name:
            raise ConfigError(
                f'schedule "{name}": the code of queue "{known.location.queue}" declares it; '
                "give this one another name"
            )
        queue = self._app.queues.get(settings.name)
        if queue is not None:
            await self._app._client().router.register(queue.settings, queue.tasks)
        await self._stored.put(schedule, "own", settings)
        note(before=_rule(known.plan.schedule if known is not None else None), after=_rule(schedule))
        return await self.get(name)

    async def list(self) -> ScheduleInfos:
        """All schedules on the server, and those of the code that no worker has written there yet."""
        locations = await self._stored.locations()
        found: ScheduleInfos = []
        for location in sorted(set(locations.values())):
            found += await self._infos(
                location, [name for name, there in locations.items() if there == location]
            )
        seen = {info.name for info in found}
        for name in {
            *locations,
            *self._app.declared,
        } - seen:  # On the way to another partition, or only in the code.
            with suppress(NotFound):
                found.append(await self.get(name))
        return sorted(found, key=lambda info: info.name)

    async def get(self, name: str) -> ScheduleInfo:
        """One schedule. Raises NotFound if there is none of this name.

        Args:
            name: the name of the schedule.
        """
        known = await self._find(name)
        for info in await self._infos(known.location, [name]) if known is not None else ():
            return info
        declared = self._app.declared.get(name)
        if declared is None:
            raise await self._unknown(name)
        return schedule_info(
            declared, SchedulePlan(code=declared), await self._now_ms(declared), problem=NOT_YET_DECLARED
        )

    async def preview(self, name: str, count: int = PREVIEW_COUNT) -> Instants:
        """The next planned times, in the schedule's zone. A pause is ignored.

        Args:
            name: the name of the schedule.
            count: how many times, up to 1,000.
        """
        if not isinstance(count, int) or not 1 <= count <= 1000:
            raise ArgumentsError(f"preview({count!r}): give a number of ticks from 1 to 1,000")
        schedule, _ = await self._in_force(name)
        now_ms = await self._now_ms(schedule)
        return [in_zone(planned, schedule.tz) for planned in islice(schedule.ticks(now_ms), count)]

    async def runs(self, name: str) -> PastRuns:
        """The newest runs, up to 30, the newest first. They stay when their jobs are no longer kept.

        Args:
            name: the name of the schedule.
        """
        known = await self._find(name)
        if known is None:
            if name not in self._app.declared:
                raise await self._unknown(name)
            return []
        return await self._runs(known.location.queue, known.plan)

    async def all_runs(self) -> dict[str, PastRuns]:
        """The newest runs of every schedule on the server, by name."""
        locations = await self._stored.locations()
        found: dict[str, PastRuns] = {}
        for location in sorted(set(locations.values())):
            for some in in_batches([name for name, there in locations.items() if there == location]):
                for name, plan in (await self._look(location, some)).plans.items():
                    found[name] = await self._runs(location.queue, plan)
        return found

    @audited("run schedule", of_schedules)
    async def run(self, name: str) -> Job[Any]:
        """Run the schedule now, in addition to its plan and even if it is paused. Returns the job.

        Args:
            name: the name of the schedule.
        """
        schedule, location = await self._in_force(name)
        client = self._app._client()
        queue = self._app.queues.get(schedule.queue)
        if queue is None:
            queue = self._app._undeclared_queue(await self._settings(schedule.queue))
        elif location is None:
            await client.router.register(queue.settings, queue.tasks)
        layout = await client.router.layout(queue.settings)
        number = (
            location.partition
            if location is not None
            else partition_of_schedule(queue.settings, layout, schedule)
        )
        partition, id = client.router.partition(queue.settings, number), new_id(number)
        durability = self._app.durability
        server = client.store.confirmed(durability) if durability is not None else None
        ticks = ScheduleTicks(client.store, ScheduleCodec(self._app._codecs), queue.tasks)
        created = await ticks.fire_now(partition, schedule, id, server)
        note(job=id)
        return Job(id, created, queue)

    @audited("pause schedule", of_schedules)
    async def pause(self, name: str) -> None:
        """Start no runs until `resume(name)`. Running jobs go on.

        Args:
            name: the name of the schedule.
        """
        await self._change(name, pause_plan)
        note(after={"paused": True})

    @audited("resume schedule", of_schedules)
    async def resume(self, name: str) -> None:
        """Continue with the next run. Runs within the pause are not made up for.

        Args:
            name: the name of the schedule.
        """
        await self._change(name, resume_plan)
        note(after={"paused": False})

    @audited("remove schedule", of_schedules)
    async def remove(self, name: str) -> None:
        """Remove a schedule that was made at run time. If the code declares it too, the code counts again.

        Args:
            name: the name of the schedule.
        """
        location = await self._stored.location(name)
        if location is None:
            raise await self._unknown(name)
        plan = (await self._look(location, [name])).plans.get(name)
        if plan is not None and plan.own is None and location.queue in await self._served():
            raise ConfigError(
                f'schedule "{name}": the code of queue "{location.queue}" declares it and would bring it '
                "back; pause it, or remove it from the code"
            )
        await self._stored.remove(name)
        note(before=_rule(plan.schedule if plan is not None else None))

    # Reads and changes on the server.

    @property
    def _stored(self) -> Stored:
        return Stored(self._app._client().store, ScheduleCodec(self._app._codecs))

    async def _find(self, name: str) -> StoredSchedule | None:
        return await self._stored.find(name)

    async def _look(self, location: ScheduleLocation, names: Sequence[str]) -> PartitionPlans:
        return await self._stored.read(location, names)

    async def _change(self, name: str, how: Callable[[SchedulePlan, int], PlanChange | None]) -> None:
        def noted(plan: SchedulePlan, now_ms: int) -> PlanChange | None:
            note(before={"paused": plan.paused_ms is not None})
            return how(plan, now_ms)

        try:
            await self._stored.change(name, noted)
        except NotFound:
            schedule = self._app.declared.get(name)
            if schedule is None:
                raise await self._unknown(name) from None
            await self._bring(schedule)
            await self._stored.change(name, noted)

    async def _bring(self, schedule: Schedule) -> None:
        """Write one schedule of the code to the server, as a worker does when it starts."""
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
        return ScheduleCodec(self._app._codecs).protect(self._app.declared[name]), None

    async def _infos(self, location: ScheduleLocation, names: Sequence[str]) -> ScheduleInfos:
        served = await self._served()
        settings = await self._settings(location.queue)
        store = self._app._client().store
        tasks = await store.tasks(location.queue)
        found: ScheduleInfos = []
        for some in in_batches(names):
            look = await self._look(location, some)
            for plan in look.plans.values():
                schedule = plan.schedule
                if schedule is not None:
                    problem = _problem(schedule, served, tasks)
                    last = await self._last(settings, plan)
                    found.append(schedule_info(schedule, plan, look.now_ms, last, problem))
        return found

    async def _last(self, settings: QueueSettings, plan: SchedulePlan) -> LastRun | None:
        """The last run, by a tick or by a call."""
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

    async def _runs(self, queue: str, plan: SchedulePlan) -> PastRuns:
        """The runs of a plan. The jobs tell about those whose end is not noted."""
        settings = await self._settings(queue)
        found = read_runs(plan.runs)
        for number, run in enumerate(found):
            if run.outcome is None and run.job_id is not None:
                there = await self._app._client().find(settings, run.job_id)
                if there is not None:
                    job = there[1]
                    took = None if job.ending is None else round(job.ending.duration_ms, 1)
                    found[number] = replace(run, outcome=job.state, duration_ms=took)
        return found

    async def _settings(self, queue: str) -> QueueSettings:
        """The settings of a queue as the code declares them, or else as the server has them."""
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
        """A task by its name, from the code if this app has it, or else from the server."""
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
                f'schedule "{name}": queue "{queue_name}" has no task "{task}"; '
                f"it has: {', '.join(known) or 'none'}"
            )
        if settings.needs_key:
            raise ConfigError(
                f'schedule "{name}": queue "{queue_name}" is ordered by key, '
                "and only the code of the task can make the key; "
                "upsert it from the app that has the task"
            )
        zone = self._app.environment.timezone
        payload = encode_payload(task, args, self._app.payload_limit, self._app._hooks)
        return rule.schedule(name, queue_name, task, payload, None, zone), settings

    async def _unknown(self, name: str) -> NotFound:
        names = sorted({*self._app.declared, *await self._stored.locations()})
        some = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
        return NotFound(f'schedule "{name}": there is none of this name; there is: {some or "none"}')


def _rule(schedule: Schedule | None) -> dict[str, Any] | None:
    """A schedule for the audit log, without its arguments and the key that is made of them."""
    if schedule is None:
        return None
    said: dict[str, Any] = {"task": f"{schedule.queue}/{schedule.task}"}
    for field in fields(schedule):
        value = getattr(schedule, field.name)
        if field.name not in _NOT_IN_THE_LOG and value != field.default:
            said[field.name] = value
    return said


def _problem(schedule: Schedule, served: Collection[str], tasks: Collection[str]) -> str | None:
    if schedule.queue not in served:
        return f'no worker serves queue "{schedule.queue}"'
    if schedule.task not in tasks:
        return f'no worker knows its task "{schedule.task}"'
    return None
