"""Steps: the history of a durable job, and forks that continue it."""

from __future__ import annotations

from urllib.parse import quote

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.jobs import JOB_PATH, handle_of
from qbull.core.fork import step_in
from qbull.errors import job_not_found
from qbull.views import steps as views
from qbull.views.jobs import AcceptedView

STEPS_LIMIT_BYTES = 8 << 20
"""The results of one answer take about so many bytes at most, and one more result."""


async def job_steps(call: ApiCall[Nothing, Nothing]) -> views.StepsView:
    handle = await handle_of(call)
    info = await handle.info()
    if info is None:
        raise job_not_found(handle.queue, handle.id)
    found = await handle._recorded_steps(STEPS_LIMIT_BYTES)
    shown = call.context.redaction.steps([views.step_view(step) for step in found], info, call.caller)
    return views.StepsView(timestamp=now(), queue=handle.queue, job_id=handle.id, steps=shown)


async def fork_job(call: ApiCall[Nothing, views.ForkBody]) -> Reply:
    handle, asked, redaction = await handle_of(call), call.body, call.context.redaction
    if asked.payload is not None:
        call.audit_details["edited"] = True
        redaction.refuse_hidden(asked.payload)
    if asked.results:
        call.audit_details["patched"] = sorted(asked.results)
        redaction.refuse_hidden(asked.results)
    results = {step_in(name): value for name, value in asked.results.items()}
    made = await handle.fork(asked.step, arguments=asked.payload, results=results, id=asked.id)
    accepted = AcceptedView(job_id=made.id, status="waiting", timestamp=now(), created=made.created)
    root = call.request.scope.get("root_path", "")
    where = f"{root}/api/queues/{handle.queue}/jobs/{quote(made.id, safe='')}"
    return Reply(accepted, headers={"location": where})


ENDPOINTS = [
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/steps",
        role="viewer",
        summary="List the recorded steps of a durable job",
        handler=job_steps,
        answer=views.StepsView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{JOB_PATH}/fork",
        role="operator",
        summary="Run a durable job that has ended again from a step, as a new job",
        handler=fork_job,
        body=views.ForkBody,
        body_optional=True,
        answer=AcceptedView,
        status=202,
        problems=(404, 409, 413),
        audit="fork job",
    ),
]
