"""Slow: tasks by their 95th percentile, and the jobs that have been running longest."""

from __future__ import annotations

from qbull.api.context import now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.manage import slow as durations
from qbull.views import slow as views
from qbull.views.shape import view_of


async def slow(call: ApiCall[views.SlowQuery, Nothing]) -> views.SlowView:
    store, limit, name = call.context.store, call.query.limit, call.query.queue
    if name is None:
        queues = await call.context.queues_of(call.caller)
    else:
        call.check_queue(name)
        queues = [await call.context.queue(name)]
    runs = await durations.longest_running(store, queues, limit)
    return views.SlowView(
        timestamp=now(),
        tasks=[
            view_of(views.TaskDurationsView, one) for one in await durations.slow_tasks(store, queues, limit)
        ],
        running=[view_of(views.LongRunView, run.job, running_ms=run.ms) for run in runs],
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/slow",
        role="viewer",
        scope="queues",
        summary="List the slowest tasks, and the jobs that have been running longest",
        handler=slow,
        query=views.SlowQuery,
        answer=views.SlowView,
        problems=(404,),
    ),
]
