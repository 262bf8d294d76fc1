"""Flows: show the jobs of a flow and the flows that run or have ended lately; retry and cancel a flow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.job_query import parse_query
from qbull.errors import job_not_found
from qbull.manage.flow import Flow, find_flow
from qbull.manage.flow_walk import FlowJob, FlowWalk, JobAddress, flow_levels, walk_flow
from qbull.manage.job_search import SearchPosition, SearchRequest, find_jobs
from qbull.store.verbs import flow_messages
from qbull.views import flows as views
from qbull.views.jobs import CancellingBody

MAX_FLOW_JOBS = 300
"""Jobs shown of one flow."""
MAX_LISTED_FLOW_JOBS = 40
"""Jobs shown of each flow in a list."""
MAX_LISTED_FLOWS = 25
"""Flows shown in a list."""
MAX_SCANNED_FLOW_JOBS = 200
"""Flow jobs sampled from each queue."""
MAX_ABOUT_CHARACTERS = 80
"""Length of the arguments that tell flows apart."""
FLOW_WALK_BATCH_SIZE = 6
"""Flows that are read concurrently."""

FLOW_JOBS_QUERY = parse_query("flow:*", datetime.now(UTC), UTC)
FLOW_ENDED_STATES = ("completed", "failed", "cancelled")


async def job_flow(call: ApiCall[Nothing, Nothing]) -> views.FlowView:
    queue = await call.context.queue(call.path["queue"])
    id = queue.job(call.path["id"]).id
    walked = await walk_flow(call.context.app._client(), call.context.queue, (queue.name, id), MAX_FLOW_JOBS)
    if walked is None:
        raise job_not_found(queue.name, id)
    if not walked.flow:
        return views.FlowView(timestamp=now(), flow=None, steps=[], more=False)
    seen = {address: one for address, one in walked.seen.items() if call.caller.may_use(address[0])}
    walked = replace(walked, seen=seen)
    return views.FlowView(
        timestamp=now(), flow=walked.flow, steps=_steps(call.context, walked), more=walked.more
    )


async def all_flows(call: ApiCall[views.FlowsQuery, Nothing]) -> views.FlowsView:
    query, caller = call.query, call.caller
    if query.find is not None or query.state is not None or query.cursor is not None:
        return await _search_flows(call)
    found = await call.context.flows.get()
    if not caller.queues:
        return found
    flows = [flow for flow in found.flows if _in_scope(flow, caller)]
    return views.FlowsView(timestamp=found.timestamp, flows=flows, next=found.next)


def _in_scope(flow: views.ShownFlowView, caller: Caller) -> bool:
    return all(caller.may_use(step.queue) for step in flow.steps)


async def _search_flows(call: ApiCall[views.FlowsQuery, Nothing]) -> views.FlowsView:
    """Search the jobs of flows in all queues, for a bounded time, and keep the flows that fit."""
    context, query = call.context, call.query
    queues = await context.queues_of(call.caller)
    asked = SearchRequest(queues, FLOW_JOBS_QUERY, limit=MAX_SCANNED_FLOW_JOBS, cursor=query.cursor)
    found = await find_jobs(asked)
    addresses = {job.flow: (job.queue, job.id) for job in found.jobs}  # One job of each flow is enough.
    flows = []
    async for walked in _walk_flows(context, list(addresses.values())):
        flow = _flow_view(context, walked)
        if (
            _in_scope(flow, call.caller)
            and query.state in (None, flow.state)
            and _has_words(flow, query.find)
        ):
            flows.append(flow)
    flows.sort(key=lambda flow: flow.created_at, reverse=True)
    return views.FlowsView(
        timestamp=now(), flows=flows, scanned=found.scanned, total=found.total, next=found.next
    )


def _has_words(flow: views.ShownFlowView, words: str | None) -> bool:
    """Whether all words are in the tasks, ids or shown arguments of a flow; case does not matter."""
    parts = [flow.flow, flow.first, flow.task, flow.about or ""]
    parts += [text for step in flow.steps for text in (step.id, f"{step.queue}/{step.task}")]
    text = " ".join(parts).lower()
    return all(word in text for word in (words or "").lower().split())


async def cancel_flow(call: ApiCall[Nothing, CancellingBody]) -> views.FlowChangeView:
    flow = await _flow(call)
    open_jobs = sum(n for state, n in (await flow.counts()).items() if state not in FLOW_ENDED_STATES)
    await flow.cancel(call.body.reason)
    return views.FlowChangeView(
        timestamp=now(), message="the flow was cancelled", flow=flow.id, jobs=open_jobs
    )


async def retry_flow(call: ApiCall[Nothing, Nothing]) -> views.FlowChangeView:
    flow = await _flow(call)
    retried = await flow.retry()
    return views.FlowChangeView(timestamp=now(), message="the flow runs again", flow=flow.id, jobs=retried)


async def _flow(call: ApiCall[Any, Any]) -> Flow[Any]:
    """The flow of a job. All its jobs must be in queues that the caller may use."""
    queue = await call.context.queue(call.path["queue"])
    flow = await find_flow(call.context.app, queue.job(call.path["id"]))
    for name in {job.queue for job in flow.jobs}:
        call.check_queue(name)
    return flow


def _steps(context: ApiContext, walked: FlowWalk) -> list[views.FlowStepView]:
    """The steps of a flow, in the order in which they can run."""
    levels = flow_levels(walked.seen)
    # Ids rise in the order of creation.
    addresses = sorted(walked.seen, key=lambda address: (levels[address], address[1]))
    number = {address: n for n, address in enumerate(addresses)}
    steps = []
    for address in addresses:
        one = walked.seen[address]
        info = one.info
        error = context.redaction.error(one.error, info, None) if info is not None else None
        steps.append(
            views.FlowStepView(
                queue=address[0],
                id=address[1],
                task=one.task,
                state=one.state,
                level=levels[address],
                waits_for=sorted({number[before] for before in one.awaits if before in number}),
                kept=info is not None,
                blocked=one.blocked,
                fallback=one.fallback,
                error=error,
                started_at=None if info is None else info.started_at,
                finished_at=None if info is None else info.finished_at,
                duration_ms=None if info is None else info.duration_ms,
            )
        )
    return steps


async def read_flows(context: ApiContext) -> views.FlowsView:
    """The flows that a bounded sample of each queue finds, the newest first."""
    client = context.app._client()
    addresses: list[JobAddress] = []
    for queue in await context.queues():
        partitions = await client.router.partitions(queue.settings)
        ids = await flow_messages.sample_flow_jobs(partitions, MAX_SCANNED_FLOW_JOBS)
        addresses += [(queue.name, id) for id in ids]
    addresses.sort(key=lambda address: address[1], reverse=True)  # Ids start with their time of creation.
    flows: list[views.ShownFlowView] = []
    async with aclosing(_walk_flows(context, addresses)) as walks:
        async for walked in walks:
            flows.append(_flow_view(context, walked))
            if len(flows) == MAX_LISTED_FLOWS:
                break
    flows.sort(key=lambda flow: flow.created_at, reverse=True)
    return views.FlowsView(timestamp=now(), flows=flows, next=str(SearchPosition()))


async def _walk_flows(context: ApiContext, addresses: list[JobAddress]) -> AsyncGenerator[FlowWalk, None]:
    """The flows of some jobs, each once."""
    client, met = context.app._client(), set[JobAddress]()
    while addresses:
        some, addresses = addresses[:FLOW_WALK_BATCH_SIZE], addresses[FLOW_WALK_BATCH_SIZE:]
        for walked in await asyncio.gather(
            *(walk_flow(client, context.queue, address, MAX_LISTED_FLOW_JOBS) for address in some)
        ):
            if walked is not None and walked.flow and not met & set(walked.seen):
                met |= set(walked.seen)
                yield walked
        addresses = [address for address in addresses if address not in met]


def _flow_view(context: ApiContext, walked: FlowWalk) -> views.ShownFlowView:
    kept = {address: one for address, one in walked.seen.items() if one.info is not None}
    levels = flow_levels(walked.seen)
    last = max(kept, key=lambda address: (not kept[address].fallback, levels[address]))
    infos = [one.info for one in kept.values() if one.info is not None]
    state = _state_of(kept[last], list(kept.values()))
    ends = [info.finished_at for info in infos if info.finished_at is not None]
    first = min(kept, key=lambda address: (levels[address], address[1]))
    return views.ShownFlowView(
        flow=walked.flow,
        queue=last[0],
        id=last[1],
        task=kept[last].task,
        state=state,
        steps=_steps(context, walked),
        more=walked.more,
        created_at=min(info.created_at for info in infos),
        finished_at=max(ends, default=None) if state != "running" else None,
        first=kept[first].task,
        about=_about(context, kept[first]),
        counts=dict(Counter(one.state for one in walked.seen.values())),
    )


def _about(context: ApiContext, job: FlowJob) -> str | None:
    """A part of the arguments of a job, as everybody may see them."""
    shown = None if job.info is None else context.redaction.value(job.info.payload, None)
    if not isinstance(shown, dict):
        return None
    texts = (
        value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in shown.values()
    )
    text = ", ".join(f"{name}={value}" for name, value in zip(shown, texts, strict=True))
    return (text if len(text) <= MAX_ABOUT_CHARACTERS else text[: MAX_ABOUT_CHARACTERS - 1] + "…") or None


def _state_of(last: FlowJob, seen: list[FlowJob]) -> views.FlowState:
    """The state of a flow: that of its last job or the fallback; "running" while one of them may run."""
    if any(one.state not in FLOW_ENDED_STATES for one in seen if not one.fallback):
        return "running"
    if last.state == "completed":
        return "completed"
    instead = [one.state for one in seen if one.fallback]
    if any(state not in FLOW_ENDED_STATES for state in instead):
        return "running"
    if "completed" in instead:
        return "rescued"
    return "failed" if last.state == "failed" else "cancelled"


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/jobs/{id}/flow",
        role="viewer",
        summary="Show the flow of a job: its jobs, their dependencies and states",
        handler=job_flow,
        answer=views.FlowView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/jobs/{id}/flow/cancel",
        role="operator",
        summary="Cancel all unfinished jobs of the flow of a job",
        handler=cancel_flow,
        body=CancellingBody,
        body_optional=True,
        answer=views.FlowChangeView,
        problems=(404,),
        audit="cancel flow",
    ),
    Endpoint(
        method="POST",
        path="/api/queues/{queue}/jobs/{id}/flow/retry",
        role="operator",
        summary="Run the failed and cancelled jobs of the flow of a job again",
        handler=retry_flow,
        answer=views.FlowChangeView,
        problems=(404,),
        audit="retry flow",
    ),
    Endpoint(
        method="GET",
        path="/api/flows",
        role="viewer",
        scope="queues",
        summary="List running and recently finished flows, or search all",
        handler=all_flows,
        query=views.FlowsQuery,
        answer=views.FlowsView,
    ),
]
