"""Stacks: where the task of a running job is, as its worker reports it."""

from __future__ import annotations

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.problems import ApiProblem
from qbull.errors import ResultTimeout
from qbull.manage.stack import read_stack
from qbull.views import jobs as views
from qbull.views.shape import view_of


async def job_stack(call: ApiCall[Nothing, Nothing]) -> views.StackView:
    queue, id = await call.context.queue(call.path["queue"]), call.path["id"]
    try:
        report = await read_stack(queue, queue.job(id).id)
    except ResultTimeout as late:
        raise ApiProblem(503, str(late)) from None
    return view_of(views.StackView, report, timestamp=now(), queue=queue.name, job_id=id)


ENDPOINTS = [
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/jobs/{id}/stack",
        role="operator",
        summary="Ask the worker of a running job where its task is; 503 if it does not answer within 5 s",
        handler=job_stack,
        answer=views.StackView,
        problems=(404, 409, 503),
        audit="read stack",
    ),
]
