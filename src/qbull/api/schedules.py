"""Schedules: list, create, run, pause, resume and remove."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.filters import coming_moment
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.schedule_info import ScheduleInfo
from qbull.errors import NotFound
from qbull.views import schedules as views
from qbull.views.access import DoneView
from qbull.views.shape import view_of


async def list_schedules(call: ApiCall[Nothing, Nothing]) -> views.SchedulesView:
    found = await call.context.app.schedules.list()
    shown = [_schedule_view(call, info) for info in found if call.caller.may_use(info.queue)]
    return views.SchedulesView(timestamp=now(), schedules=shown)


async def one_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    return await _one(call)


async def put_schedule(call: ApiCall[Nothing, views.NewScheduleBody]) -> views.OneScheduleView:
    asked = call.body
    await _check_new_schedule(call)
    call.context.redaction.refuse_hidden(asked.args)
    call.audit_details.update(task=asked.task, cron=asked.cron, every=asked.every)
    await call.context.app.schedules.upsert(
        call.path["name"],
        asked.task,
        cron=asked.cron,
        every=asked.every,
        tz=asked.tz,
        args=asked.args,
        catch_up=asked.catch_up,
        overlap=asked.overlap,
        catch_up_limit=asked.catch_up_limit,
        jitter=asked.jitter,
        start=None if asked.start is None else coming_moment("start", asked.start),
        end=None if asked.end is None else coming_moment("end", asked.end),
    )
    return await _one(call)


async def remove_schedule(call: ApiCall[Nothing, Nothing]) -> DoneView:
    name = call.path["name"]
    await _check_schedule(call, name)
    await call.context.app.schedules.remove(name)
    return DoneView(message=f'schedule "{name}": removed', timestamp=now())


async def pause_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    await _check_schedule(call, call.path["name"])
    await call.context.app.schedules.pause(call.path["name"])
    return await _one(call)


async def resume_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    await _check_schedule(call, call.path["name"])
    await call.context.app.schedules.resume(call.path["name"])
    return await _one(call)


async def run_schedule(call: ApiCall[Nothing, Nothing]) -> views.ScheduleRunView:
    return await _run(call, call.path["name"])


async def run_schedule_of_queue(call: ApiCall[Nothing, Nothing]) -> views.ScheduleRunView:
    return await _run(call, call.path["schedule"])


async def preview_schedule(call: ApiCall[views.PreviewQuery, Nothing]) -> views.Preview:
    name = call.path["name"]
    info = await _find(call, name)
    found = await call.context.app.schedules.preview(name, call.query.count)
    return views.Preview(
        timestamp=now(),
        name=name,
        tz=info.tz,
        next=found,
        local=[at.isoformat(timespec="milliseconds") for at in found],
    )


async def schedule_runs(call: ApiCall[Nothing, Nothing]) -> views.PastRunsView:
    name = call.path["name"]
    await _check_schedule(call, name)
    runs = await call.context.app.schedules.runs(name)
    return views.PastRunsView(
        timestamp=now(), name=name, runs=[view_of(views.PastRunView, run) for run in runs]
    )


async def schedule_days(call: ApiCall[Nothing, Nothing]) -> views.ScheduleDaysView:
    schedules, caller = call.context.app.schedules, call.caller
    runs, days = await schedules.all_runs(), []
    today = datetime.now(UTC)
    for info in await schedules.list():
        if caller.may_use(info.queue):
            ahead = await schedules.preview(info.name, MAX_DAY_TICKS + 1)
            coming = list(takewhile(lambda at: at < today + TIMELINE_SPAN, ahead))
            days.append(
                view_of(
                    views.ScheduleDayView,
                    info,
                    runs=[view_of(views.PastRunView, run) for run in runs.get(info.name, ())],
                    next=[] if info.paused else coming[:MAX_DAY_TICKS],
                    more=len(coming) > MAX_DAY_TICKS,
                )
            )
    return views.ScheduleDaysView(timestamp=now(), schedules=days)


async def _run(call: ApiCall[Nothing, Nothing], name: str) -> views.ScheduleRunView:
    await _check_schedule(call, name)
    job = await call.context.app.schedules.run(name)
    call.audit_details["job"] = job.id
    return views.ScheduleRunView(message=f'schedule "{name}" was started', job_id=job.id, timestamp=now())


async def _one(call: ApiCall[Any, Any]) -> views.OneScheduleView:
    info = await _find(call, call.path["name"])
    return views.OneScheduleView(timestamp=now(), schedule=_schedule_view(call, info))


async def _check_schedule(call: ApiCall[Any, Any], name: str) -> None:
    """Refuse a schedule whose queue is not in the scope of the caller."""
    if call.caller.queues:
        await _find(call, name)


async def _find(call: ApiCall[Any, Any], name: str) -> ScheduleInfo:
    info = await call.context.app.schedules.get(name)
    call.check_queue(info.queue)
    return info


async def _check_new_schedule(call: ApiCall[Nothing, views.NewScheduleBody]) -> None:
    """The same for one that is written: it may be there already, and belong to another queue."""
    if not call.caller.queues:
        return
    queue, there, _ = call.body.task.rpartition("/")
    if not there:
        raise ApiProblem(
            400, 'body: task: give "queue/task"', errors=[InvalidField("task", 'give "queue/task"')]
        )
    call.check_queue(queue)
    with suppress(NotFound):
        await _check_schedule(call, call.path["name"])


def _schedule_view(call: ApiCall[Any, Any], info: ScheduleInfo) -> views.ScheduleView:
    redaction = call.context.redaction
    args = redaction.value(info.args, call.caller)
    last = info.last
    if last is not None and last.error is not None and redaction.is_used:
        last = replace(last, error=redaction.error(last.error, None, call.caller))
    return view_of(views.ScheduleView, replace(info, last=last), args=args)


SCHEDULE_PATH = "/api/schedules/{name}"
MAX_DAY_TICKS = 100
"""Planned times of a schedule in the time line."""
TIMELINE_SPAN = timedelta(hours=24)

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/schedules",
        role="viewer",
        scope="queues",
        summary="List all schedules with their next and last runs",
        handler=list_schedules,
        answer=views.SchedulesView,
    ),
    Endpoint(
        method="GET",
        path=SCHEDULE_PATH,
        role="viewer",
        scope="queues",
        summary="Show one schedule",
        handler=one_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=SCHEDULE_PATH,
        role="admin",
        scope="queues",
        summary="Create or change a schedule; it overrides the code until it is removed",
        handler=put_schedule,
        body=views.NewScheduleBody,
        answer=views.OneScheduleView,
        problems=(404,),
        audit="put schedule",
    ),
    Endpoint(
        method="DELETE",
        path=SCHEDULE_PATH,
        role="admin",
        scope="queues",
        summary="Remove a schedule that was created at run time",
        handler=remove_schedule,
        answer=DoneView,
        problems=(404,),
        audit="remove schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/pause",
        role="operator",
        scope="queues",
        summary="Pause a schedule",
        handler=pause_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
        audit="pause schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/resume",
        role="operator",
        scope="queues",
        summary="Resume a paused schedule with its next run",
        handler=resume_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
        audit="resume schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/run",
        role="operator",
        scope="queues",
        summary="Run a schedule now, in addition to its planned runs",
        handler=run_schedule,
        answer=views.ScheduleRunView,
        problems=(404,),
        audit="run schedule",
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{schedule}/run",
        role="operator",
        scope="queues",
        summary="Run a schedule now, at the address that earlier systems used",
        handler=run_schedule_of_queue,
        answer=views.ScheduleRunView,
        problems=(404,),
        audit="run schedule",
    ),
    Endpoint(
        method="GET",
        path=f"{SCHEDULE_PATH}/runs",
        role="viewer",
        scope="queues",
        summary="List the newest runs of a schedule with outcome and duration",
        handler=schedule_runs,
        answer=views.PastRunsView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/schedule-days",
        role="viewer",
        scope="queues",
        summary="Show the newest runs of all schedules, and those planned for the next 24 hours",
        handler=schedule_days,
        answer=views.ScheduleDaysView,
    ),
    Endpoint(
        method="GET",
        path=f"{SCHEDULE_PATH}/preview",
        role="viewer",
        scope="queues",
        summary="Preview the next runs of a schedule",
        handler=preview_schedule,
        query=views.PreviewQuery,
        answer=views.Preview,
        problems=(404,),
    ),
]
