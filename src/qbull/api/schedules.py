"""Schedules: list, create, run, pause, resume and remove."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.filters import moment_in
from qbull.core.schedule_info import ScheduleInfo
from qbull.views import schedules as views
from qbull.views.access import DoneView
from qbull.views.shape import view_of


async def list_schedules(call: ApiCall[Nothing, Nothing]) -> views.SchedulesView:
    found = await call.context.app.schedules.list()
    return views.SchedulesView(timestamp=now(), schedules=[_schedule_view(call, info) for info in found])


async def one_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    return await _one(call)


async def put_schedule(call: ApiCall[Nothing, views.NewScheduleBody]) -> views.OneScheduleView:
    asked = call.body
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
        start=None if asked.start is None else moment_in("start", asked.start),
        end=None if asked.end is None else moment_in("end", asked.end),
    )
    return await _one(call)


async def remove_schedule(call: ApiCall[Nothing, Nothing]) -> DoneView:
    name = call.path["name"]
    await call.context.app.schedules.remove(name)
    return DoneView(message=f'schedule "{name}": removed', timestamp=now())


async def pause_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    await call.context.app.schedules.pause(call.path["name"])
    return await _one(call)


async def resume_schedule(call: ApiCall[Nothing, Nothing]) -> views.OneScheduleView:
    await call.context.app.schedules.resume(call.path["name"])
    return await _one(call)


async def run_schedule(call: ApiCall[Nothing, Nothing]) -> views.ScheduleRunView:
    return await _run(call, call.path["name"])


async def run_schedule_of_queue(call: ApiCall[Nothing, Nothing]) -> views.ScheduleRunView:
    return await _run(call, call.path["schedule"])


async def preview_schedule(call: ApiCall[views.PreviewQuery, Nothing]) -> views.Preview:
    name = call.path["name"]
    info = await call.context.app.schedules.get(name)
    found = await call.context.app.schedules.preview(name, call.query.count)
    return views.Preview(
        timestamp=now(),
        name=name,
        tz=info.tz,
        next=found,
        local=[at.isoformat(timespec="milliseconds") for at in found],
    )


async def _run(call: ApiCall[Nothing, Nothing], name: str) -> views.ScheduleRunView:
    job = await call.context.app.schedules.run(name)
    call.audit_details["job"] = job.id
    return views.ScheduleRunView(message=f'schedule "{name}" was started', job_id=job.id, timestamp=now())


async def _one(call: ApiCall[Any, Any]) -> views.OneScheduleView:
    info = await call.context.app.schedules.get(call.path["name"])
    return views.OneScheduleView(timestamp=now(), schedule=_schedule_view(call, info))


def _schedule_view(call: ApiCall[Any, Any], info: ScheduleInfo) -> views.ScheduleView:
    redaction = call.context.redaction
    args = redaction.value(info.args, call.caller)
    last = info.last
    if last is not None and last.error is not None and redaction.is_used:
        last = replace(last, error=redaction.error(last.error, None, call.caller))
    return view_of(views.ScheduleView, replace(info, last=last), args=args)


SCHEDULE_PATH = "/api/schedules/{name}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/schedules",
        role="viewer",
        summary="List all schedules with their next and last runs",
        handler=list_schedules,
        answer=views.SchedulesView,
    ),
    Endpoint(
        method="GET",
        path=SCHEDULE_PATH,
        role="viewer",
        summary="Show one schedule",
        handler=one_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=SCHEDULE_PATH,
        role="admin",
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
        summary="Remove a schedule that was created at run time",
        handler=remove_schedule,
        answer=DoneView,
        problems=(404,),
        audit="remove schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/pause",
        role="admin",
        summary="Pause a schedule",
        handler=pause_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
        audit="pause schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/resume",
        role="admin",
        summary="Resume a paused schedule with its next run",
        handler=resume_schedule,
        answer=views.OneScheduleView,
        problems=(404,),
        audit="resume schedule",
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULE_PATH}/run",
        role="admin",
        summary="Run a schedule now, in addition to its planned runs",
        handler=run_schedule,
        answer=views.ScheduleRunView,
        problems=(404,),
        audit="run schedule",
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{schedule}/run",
        role="admin",
        summary="Run a schedule now, at the address that earlier systems used",
        handler=run_schedule_of_queue,
        answer=views.ScheduleRunView,
        problems=(404,),
        audit="run schedule",
    ),
    Endpoint(
        method="GET",
        path=f"{SCHEDULE_PATH}/preview",
        role="viewer",
        summary="Preview the next runs of a schedule",
        handler=preview_schedule,
        query=views.PreviewQuery,
        answer=views.Preview,
        problems=(404,),
    ),
]
