"""Jobs: list, show, enqueue, and act on one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.filters import coming_moment, filters_of
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.job_info import AttemptInfo, JobInfo
from qbull.core.options import Options, options_from
from qbull.errors import job_not_found
from qbull.job import Job
from qbull.manage import search
from qbull.produce import by_name
from qbull.queue import Queue
from qbull.store.read import why
from qbull.store.read.pages import ReadBudget, page
from qbull.views import jobs as views
from qbull.views.shape import view_of

JOBS_PAGE_SIZE = 50
JOB_LIST_LIMIT_BYTES = 8 << 20
"""The jobs of one answer take about so many bytes at most, and one more job."""


async def jobs(call: ApiCall[views.JobsQuery, Nothing]) -> views.JobsView:
    query = call.query
    queue = await call.context.queue(call.path["queue"])
    filters = filters_of(call.context, call.caller, query)
    if query.start is not None or query.end is not None:
        if filters or query.cursor is not None or query.limit is not None:
            why_not = "start and end cannot be combined with a filter; use limit and cursor"
            raise ApiProblem(400, f"query: {why_not}", errors=[InvalidField("start", why_not)])
        start = query.start or 0
        end = start + 10 if query.end is None else query.end
        if end < start:
            raise ApiProblem(
                400, f"query: end: {end} is before start", errors=[InvalidField("end", "is before start")]
            )
        return await _jobs_between(call, queue, start, end)
    if not filters and query.cursor is None and query.state in ("waiting", "delayed", "active"):
        # In the order in which they will run.
        return await _jobs_between(call, queue, 0, query.limit or 10)
    listed = await search.search(
        queue,
        query.state,
        query.limit or JOBS_PAGE_SIZE,
        query.cursor,
        search.filter_of(filters),
        ReadBudget(JOB_LIST_LIMIT_BYTES),
    )
    return views.JobsView(
        timestamp=now(),
        queue=queue.name,
        state=query.state,
        jobs=[job_view(call, info) for info in listed.jobs],
        next=listed.next,
    )


async def _jobs_between(
    call: ApiCall[views.JobsQuery, Nothing], queue: Queue, start: int, end: int
) -> views.JobsView:
    """The jobs of a state by their positions; fewer if they are so large that the answer would be too."""
    budget = ReadBudget(JOB_LIST_LIMIT_BYTES)
    found = await page(await queue._partitions(), call.query.state, start, end, budget)
    return views.JobsView(
        timestamp=now(),
        queue=queue.name,
        state=call.query.state,
        jobs=[job_view(call, queue._info(job)) for job in found],
        cut=budget.is_spent,
    )


async def job(call: ApiCall[Nothing, Nothing]) -> JobInfo:
    return job_view(call, await info_of(call))


async def job_history(call: ApiCall[Nothing, Nothing]) -> views.HistoryView:
    info = await info_of(call)
    shown = job_view(call, info)
    runs = [*shown.history]
    if info.finished_at is not None:
        last = AttemptInfo(
            attempt=info.attempt,
            at=info.started_at,
            duration_ms=info.duration_ms or 0.0,
            error=shown.error,
            worker=info.worker or "?",
            stacktrace=shown.stacktrace,
        )
        runs.append(last)
    return views.HistoryView(
        timestamp=now(),
        queue=info.queue,
        job_id=info.id,
        attempts=runs,
        worker=info.worker,
        crashes=info.crashes,
    )


async def job_logs(call: ApiCall[views.LogsQuery, Nothing]) -> views.LogsView:
    queue = await call.context.queue(call.path["queue"])
    handle = queue.job(call.path["id"])
    lines = await handle.logs(call.query.last)
    redaction = call.context.redaction
    info = await handle.info() if redaction.has_hidden_fields else None
    if not redaction.sees_payloads(call.caller):
        lines = []
    shown = [
        view_of(views.LogLineView, line, text=redaction.text(line.text, info, call.caller)) for line in lines
    ]
    return views.LogsView(timestamp=now(), queue=queue.name, job_id=handle.id, logs=shown)


async def job_why(call: ApiCall[Nothing, Nothing]) -> views.WhyView:
    queue, id = await call.context.queue(call.path["queue"]), call.path["id"]
    client = call.context.app._client()
    there = await client.find(queue.settings, queue.job(id).id)
    if there is None:
        raise job_not_found(queue.name, id)
    partition, found = there
    answer = await why.explain_job(client.store, queue.settings, partition, found)
    info = found.info(queue.name, queue._attempts_of(found.body().task))
    return view_of(
        views.WhyView,
        answer,
        timestamp=now(),
        text=call.context.redaction.text(answer.text, info, call.caller),
        reasons=[
            view_of(
                views.ReasonView,
                one,
                text=call.context.redaction.text(one.text, info, call.caller),
                values={name: _redacted(call, value, info) for name, value in one.values.items()},
            )
            for one in answer.reasons
        ],
    )


async def enqueue(call: ApiCall[Nothing, views.NewJobBody]) -> Reply:
    queue = await call.context.queue(call.path["queue"])
    asked = call.body
    call.audit_details["target"] = f"{queue.name}/{asked.task}"
    call.context.redaction.refuse_hidden(asked.payload)
    options = _options(asked.options)
    made = await by_name.enqueue(queue, asked.task, asked.payload, options)
    found = None if made.created else await made.state()
    accepted = views.AcceptedView(
        job_id=made.id,
        status=found or ("delayed" if options.delay or options.at else "waiting"),
        timestamp=now(),
        created=made.created,
    )
    root, id = call.request.scope.get("root_path", ""), made.id
    name = id if id.isascii() and id.isalnum() else quote(id, safe="")
    return Reply(accepted, headers={"location": f"{root}/api/queues/{queue.name}/jobs/{name}"})


async def retry_job(call: ApiCall[Nothing, views.RetryJobBody]) -> views.AcceptedView:
    handle, payload = await handle_of(call), call.body.payload
    if payload is not None:
        call.context.redaction.refuse_hidden(payload)
        call.audit_details["edited"] = True
    return views.AcceptedView(job_id=handle.id, status=await handle.retry(payload), timestamp=now())


async def promote_job(call: ApiCall[Nothing, Nothing]) -> views.AcceptedView:
    handle = await handle_of(call)
    return views.AcceptedView(job_id=handle.id, status=await handle.promote(), timestamp=now())


async def reschedule_job(call: ApiCall[Nothing, views.RescheduleBody]) -> views.AcceptedView:
    handle, asked = await handle_of(call), call.body
    if (asked.delay is None) == (asked.at is None):
        why = "give delay or at, one of them"
        raise ApiProblem(400, f"body: {why}", errors=[InvalidField("delay", why)])
    at = None if asked.at is None else coming_moment("at", asked.at)
    status = await handle.reschedule(delay=asked.delay, at=at)
    return views.AcceptedView(job_id=handle.id, status=status, timestamp=now())


async def update_job(call: ApiCall[Nothing, views.UpdateBody]) -> views.AcceptedView:
    handle = await handle_of(call)
    call.context.redaction.refuse_hidden(call.body.payload)
    status = await handle.update(call.body.payload)
    return views.AcceptedView(job_id=handle.id, status=status, timestamp=now())


async def cancel_job(call: ApiCall[Nothing, views.CancellingBody]) -> views.AcceptedView:
    handle = await handle_of(call)
    return views.AcceptedView(job_id=handle.id, status=await handle.cancel(call.body.reason), timestamp=now())


async def signal_job(call: ApiCall[Nothing, views.SignalBody]) -> views.AcceptedView:
    handle, asked = await handle_of(call), call.body
    call.audit_details["signal"] = asked.name
    call.context.redaction.refuse_hidden({"value": asked.value})
    status = await handle.signal(asked.name, asked.value, id=asked.id)
    return views.AcceptedView(job_id=handle.id, status=status, timestamp=now())


async def remove_job(call: ApiCall[Nothing, Nothing]) -> views.AcceptedView:
    handle = await handle_of(call)
    return views.AcceptedView(job_id=handle.id, status=await handle.remove(), timestamp=now())


def _options(asked: msgspec.Struct) -> Options:
    values = {} if asked is views.NO_JOB_OPTIONS else msgspec.structs.asdict(asked)
    return options_from(values, lambda name, text: coming_moment(f"options.{name}", text))


async def handle_of(call: ApiCall[Any, Any]) -> Job[Any]:
    return (await call.context.queue(call.path["queue"])).job(call.path["id"])


async def info_of(call: ApiCall[Any, Any]) -> JobInfo:
    queue = await call.context.queue(call.path["queue"])
    info = await queue.job(call.path["id"]).info()
    if info is None:
        raise job_not_found(queue.name, call.path["id"])
    return info


def job_view(call: ApiCall[Any, Any], info: JobInfo) -> JobInfo:
    return call.context.redaction.job(info, call.caller)


def _redacted(call: ApiCall[Any, Any], value: str | int, info: JobInfo) -> str | int:
    return call.context.redaction.text(value, info, call.caller) if isinstance(value, str) else value


JOB_PATH = "/api/queues/{queue}/jobs/{id}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/jobs",
        role="viewer",
        summary="List jobs of one state, with optional filters",
        handler=jobs,
        query=views.JobsQuery,
        answer=views.JobsView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/jobs",
        role="operator",
        summary="Enqueue a job; the header Location has its address",
        handler=enqueue,
        body=views.NewJobBody,
        answer=views.AcceptedView,
        status=202,
        problems=(404, 413),
        audit="enqueue",
        counted=True,
    ),
    Endpoint(
        method="GET",
        path=JOB_PATH,
        role="viewer",
        summary="Show one job",
        handler=job,
        answer=JobInfo,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path=JOB_PATH,
        role="admin",
        summary="Delete a job permanently; a running job is refused",
        handler=remove_job,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="remove job",
    ),
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/history",
        role="viewer",
        summary="List the runs of a job, the oldest first",
        handler=job_history,
        answer=views.HistoryView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/logs",
        role="viewer",
        summary="Read the log lines of a job",
        handler=job_logs,
        query=views.LogsQuery,
        answer=views.LogsView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/why",
        role="viewer",
        summary="Explain why a job is not running",
        handler=job_why,
        answer=views.WhyView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/retry",
        role="operator",
        summary="Run a failed or cancelled job again, optionally with other arguments",
        handler=retry_job,
        body=views.RetryJobBody,
        body_optional=True,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="retry job",
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/promote",
        role="operator",
        summary="Make a delayed job runnable now",
        handler=promote_job,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="promote job",
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/reschedule",
        role="operator",
        summary="Change when a job may run that has not started",
        handler=reschedule_job,
        body=views.RescheduleBody,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="reschedule job",
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/update",
        role="operator",
        summary="Change the arguments of a job that has not started",
        handler=update_job,
        body=views.UpdateBody,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="update job",
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/cancel",
        role="operator",
        summary="Cancel a job; a running job is stopped",
        handler=cancel_job,
        body=views.CancellingBody,
        body_optional=True,
        answer=views.AcceptedView,
        problems=(404, 409),
        audit="cancel job",
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/signal",
        role="operator",
        summary="Send a signal to a durable job",
        handler=signal_job,
        body=views.SignalBody,
        answer=views.AcceptedView,
        problems=(404, 409, 413),
        audit="signal job",
    ),
]
