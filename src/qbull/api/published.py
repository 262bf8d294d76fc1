"""The values that a durable job has published."""

from __future__ import annotations

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.jobs import JOB_PATH, handle_of
from qbull.views import jobs as views


async def job_published(call: ApiCall[Nothing, Nothing]) -> views.PublishedView:
    handle = await handle_of(call)
    values = await handle._all_published()
    shown = call.context.redaction.value(values, call.caller)
    return views.PublishedView(
        timestamp=now(),
        queue=handle.queue,
        job_id=handle.id,
        published=dict.fromkeys(values) if shown is None else shown,
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/published",
        role="viewer",
        summary="Show the values that a durable job has published",
        handler=job_published,
        answer=views.PublishedView,
        problems=(404,),
    )
]
