"""Flows: show the jobs of a flow, and the flows that run or have ended lately."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.errors import job_not_found
from qbull.manage.flow_walk import FlowJob, FlowWalk, JobAddress, flow_levels, walk_flow
from qbull.store.verbs import flow_messages
from qbull.views import flows as views

MAX_FLOW_JOBS = 300
"""Jobs shown of one flow."""
MAX_LISTED_FLOW_JOBS = 40
"""Jobs shown of each flow in a list."""
MAX_LISTED_FLOWS = 25
"""Flows shown in a list."""
MAX_SCANNED_FLOW_JOBS = 200
"""Flow jobs sampled from each queue."""
FLOW_WALK_BATCH_SIZE = 6
"""Flows that are read concurrently."""

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


async def all_flows(call: ApiCall[Nothing, Nothing]) -> views.FlowsView:
    found, caller = await call.context.flows.get(), call.caller
    if not caller.queues:
        return found
    flows = [flow for flow in found.flows if all(caller.may_use(step.queue) for step in flow.steps)]
    return views.FlowsView(timestamp=found.timestamp, flows=flows)


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
    met: set[JobAddress] = set()
    while addresses and len(flows) < MAX_LISTED_FLOWS:
        some, addresses = addresses[:FLOW_WALK_BATCH_SIZE], addresses[FLOW_WALK_BATCH_SIZE:]
        for walked in await asyncio.gather(
            *(walk_flow(client, context.queue, address, MAX_LISTED_FLOW_JOBS) for address in some)
        ):
            if walked is not None and walked.flow and not met & set(walked.seen):
                flows.append(_flow_view(context, walked))
                met |= set(walked.seen)
        addresses = [address for address in addresses if address not in met]
    flows.sort(key=lambda flow: flow.created_at, reverse=True)
    return views.FlowsView(timestamp=now(), flows=flows[:MAX_LISTED_FLOWS])


def _flow_view(context: ApiContext, walked: FlowWalk) -> views.ShownFlowView:
    kept = {address: one for address, one in walked.seen.items() if one.info is not None}
    levels = flow_levels(walked.seen)
    last = max(kept, key=lambda address: (not kept[address].fallback, levels[address]))
    created = [one.info.created_at for one in kept.values() if one.info is not None]
    return views.ShownFlowView(
        flow=walked.flow,
        queue=last[0],
        id=last[1],
        task=kept[last].task,
        state=_state_of(kept[last], list(kept.values())),
        steps=_steps(context, walked),
        more=walked.more,
        created_at=min(created),
    )


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
        method="GET",
        path="/api/flows",
        role="viewer",
        scope="queues",
        summary="List running and recently finished flows",
        handler=all_flows,
        answer=views.FlowsView,
    ),
]
