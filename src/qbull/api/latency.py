"""Latency: wait and run times of queues and tasks over time, and events that may explain a change.

An answer is computed at most once in five seconds.
"""

from __future__ import annotations

import asyncio
import math
from typing import NamedTuple

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, CachedValue, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.filters import past_moment
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.access import in_scope
from qbull.core.latency import (
    SPANS,
    LatencyPeriod,
    TaskLatency,
    by_step,
    latest,
    period_between,
    together,
)
from qbull.core.record import to_datetime
from qbull.store.read.inspect import server_time
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditSearch
from qbull.views import latency as views

LATENCY_CACHE_SECONDS = 5.0
MAX_CACHED_LATENCIES = 500
"""Answers for different queues, tasks and periods."""
MAX_CONCURRENT_LATENCY_QUEUES = 4
MAX_MARKS = 100
MAX_LATENCY_TASKS = 50
"""Tasks in an answer, those that ran most often."""
MARKED_ACTIONS = frozenset(
    {
        "pause queue",
        "resume queue",
        "pause all queues",
        "resume all queues",
        "change settings",
        "reset settings",
        "repartition",
    }
)
"""Actions of the audit log that may change how fast jobs run."""
DEPLOY_GAP_MS = 120_000
"""Workers that start within this time of each other are one mark."""


class ChosenPeriod(NamedTuple):
    """The period of a request, in seconds since 1970."""

    start: int
    end: int


async def queue_latency(call: ApiCall[views.QueueLatencyQuery, Nothing]) -> views.QueueLatencyView:
    context, name, query = call.context, call.path["queue"], call.query
    await context.queue(name)
    chosen = _chosen(query)
    if len(context.latencies) > MAX_CACHED_LATENCIES:
        context.latencies.clear()
    fresh = context.latencies.setdefault(
        (name, query.span, chosen, query.task),
        CachedValue(lambda: _read_queue(context, name, query, chosen), LATENCY_CACHE_SECONDS),
    )
    return await fresh.get()


def _chosen(query: views.QueueLatencyQuery) -> ChosenPeriod | None:
    """The period between `from` and `to`, or None if the request has neither."""
    if query.start is None and query.end is None:
        return None
    if query.start is None or query.end is None:
        missing = "from" if query.start is None else "to"
        why = "is missing; a period has both"
        raise ApiProblem(400, f"query: {missing}: {why}", errors=[InvalidField(missing, why)])
    start, end = past_moment("from", query.start), past_moment("to", query.end)
    if start >= end:
        why = "must be after from"
        raise ApiProblem(400, f"query: to: {why}", errors=[InvalidField("to", why)])
    return ChosenPeriod(int(start.timestamp()), math.ceil(end.timestamp()))


async def _read_queue(
    context: ApiContext, queue: str, query: views.QueueLatencyQuery, chosen: ChosenPeriod | None
) -> views.QueueLatencyView:
    now_ms, task = int(await server_time(context.store) * 1000), query.task
    period = latest(now_ms, query.span) if chosen is None else period_between(*chosen, now_ms // 1000)
    steps, tasks = await _counted(context, queue, period, now_ms)
    step_seconds = period.form.step_seconds
    shown = []
    for number in sorted(steps):
        step = _of_task(steps[number], task)
        if step.runs:
            shown.append(
                views.LatencyStepView(
                    at=to_datetime(number * step_seconds * 1000),
                    latency=views.LatencyView.of(step),
                    waits=views.heat_row(step.waits),
                    durations=views.heat_row(step.runs),
                )
            )
    most = sorted(tasks, key=lambda name: -tasks[name].runs.total())[:MAX_LATENCY_TASKS]
    return views.QueueLatencyView(
        timestamp=now(),
        queue=queue,
        span=query.span,
        step_seconds=step_seconds,
        total=views.LatencyView.of(_of_task(tasks, task)),
        steps=shown,
        tasks=[views.TaskLatencyView(task=name, latency=views.LatencyView.of(tasks[name])) for name in most],
    )


async def _counted(
    context: ApiContext, queue: str, period: LatencyPeriod, now_ms: int
) -> tuple[dict[int, dict[str, TaskLatency]], dict[str, TaskLatency]]:
    """The counts of a queue by step and task, and by task over all steps."""
    steps = by_step(await context.latency_reader.read(context.store, queue, period, now_ms), period.form)
    tasks: dict[str, TaskLatency] = {}
    for step in steps.values():
        for name, counted in step.items():
            tasks.setdefault(name, TaskLatency()).add(counted)
    return steps, tasks


def _of_task(tasks: dict[str, TaskLatency], task: str | None) -> TaskLatency:
    return together(tasks.values()) if task is None else tasks.get(task, TaskLatency())


async def latency(call: ApiCall[views.SpanQuery, Nothing]) -> views.AllLatencyView:
    context, span = call.context, call.query.span
    now_ms = int(await server_time(context.store) * 1000)
    turn = asyncio.Semaphore(MAX_CONCURRENT_LATENCY_QUEUES)

    async def one(queue: str) -> views.QueueTotalView:
        async with turn:
            _, tasks = await _counted(context, queue, latest(now_ms, span), now_ms)
            return views.QueueTotalView(queue=queue, latency=views.LatencyView.of(together(tasks.values())))

    names = [queue.name for queue in await context.queues_of(call.caller)]
    return views.AllLatencyView(
        timestamp=now(), span=span, queues=list(await asyncio.gather(*(one(name) for name in names)))
    )


async def marks(call: ApiCall[views.MarksQuery, Nothing]) -> views.MarksView:
    form = SPANS[call.query.span]
    if call.query.queue is not None:
        call.check_queue(call.query.queue)
    now_ms = int(await server_time(call.context.store) * 1000)
    since_ms = now_ms - form.step_seconds * form.steps * 1000
    found = await _audited(call.context, since_ms, call.query.queue, call.caller)
    found += await _started(call.context, since_ms, call.query.queue, call.caller)
    found.sort(key=lambda one: one.at)
    return views.MarksView(timestamp=now(), marks=found[-MAX_MARKS:])


async def _audited(
    context: ApiContext, since_ms: int, queue: str | None, caller: Caller
) -> list[views.MarkView]:
    page = await audit_log.search(context.store, 1000, AuditSearch(since_ms=since_ms))
    return [
        views.MarkView(at=to_datetime(one.at_ms), action=one.entry.action, target=one.entry.target, count=1)
        for one in page
        if one.entry.action in MARKED_ACTIONS
        and one.entry.status < 400
        and (not one.entry.target or in_scope(one.entry.target, caller.queues))
        and (queue is None or one.entry.target in ("", queue))
    ]


async def _started(
    context: ApiContext, since_ms: int, queue: str | None, caller: Caller
) -> list[views.MarkView]:
    """The starts of the live workers, which a deploy makes in one go."""
    living = (await context.store.workers()).values()
    starts = sorted(
        min(began)
        for one in living
        if (
            began := [
                at
                for name, serving in one.queues.items()
                if queue in (None, name) and in_scope(name, caller.queues)
                for at in serving.since.values()
            ]
        )
    )
    groups: list[list[int]] = []
    for at_ms in starts:
        if groups and at_ms - groups[-1][-1] < DEPLOY_GAP_MS:
            groups[-1].append(at_ms)
        else:
            groups.append([at_ms])
    return [
        views.MarkView(at=to_datetime(one[0]), action="workers started", target=queue or "", count=len(one))
        for one in groups
        if one[0] >= since_ms
    ]


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/latency",
        role="viewer",
        scope="queues",
        summary="Wait and run times of each queue as percentiles, over 1 h, 24 h, 7 d or 30 d",
        handler=latency,
        query=views.SpanQuery,
        answer=views.AllLatencyView,
    ),
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/latency",
        role="viewer",
        summary="Wait and run times of a queue by time and task: percentiles and heat map",
        handler=queue_latency,
        query=views.QueueLatencyQuery,
        answer=views.QueueLatencyView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/marks",
        role="viewer",
        scope="queues",
        summary="Events that may explain a change in a chart: pauses, settings, repartitions, worker starts",
        handler=marks,
        query=views.MarksQuery,
        answer=views.MarksView,
    ),
]
