"""Flows: find all jobs of a flow from any of them.

The walk is bounded. Each job knows its dependents; a job that waits also knows its dependencies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.flow import NEVER_DUE_MS, Dependency
from qbull.core.job_info import JobInfo
from qbull.errors import NotFound, job_not_found
from qbull.store.verbs import flow_messages
from qbull.views import flows as views
from qbull.views.flows import FlowJobState

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

JobAddress: TypeAlias = tuple[str, str]
FLOW_STATE_BY_CODE: dict[str, FlowJobState] = {"c": "completed", "f": "failed", "x": "cancelled"}
FLOW_ENDED_STATES = ("completed", "failed", "cancelled")


@dataclass
class FlowJob:
    """A job of a flow, as stored or as its dependents know it."""

    task: str
    state: FlowJobState
    flow: str = ""
    info: JobInfo | None = None
    awaits: list[JobAddress] = field(default_factory=list)
    tells: list[JobAddress] = field(default_factory=list)
    blocked: bool = False
    fallback: bool = False
    error: str | None = None


@dataclass
class FlowWalk:
    """The result of a walk: `seen` in the order of discovery; `more` if it stopped before the end."""

    flow: str
    seen: dict[JobAddress, FlowJob]
    more: bool


async def job_flow(call: ApiCall[Nothing, Nothing]) -> views.FlowView:
    queue = await call.context.queue(call.path["queue"])
    id = queue.job(call.path["id"]).id
    walked = await walk_flow(call.context, (queue.name, id), MAX_FLOW_JOBS)
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


async def walk_flow(context: ApiContext, start: JobAddress, most: int) -> FlowWalk | None:
    """All jobs of this job's flow; None if there is no such job. Jobs found together are read together."""
    seen: dict[JobAddress, FlowJob] = {}
    told: dict[JobAddress, tuple[str, Dependency]] = {}
    flow, tried, next_ = "", {start}, [start]
    while next_ and len(seen) < most:
        addresses = next_[: most - len(seen)]
        next_ = next_[len(addresses) :]
        found = await asyncio.gather(*(_visit_job(context, address, told) for address in addresses))
        if found[0] is None and not seen:
            return None
        for address, one in zip(addresses, found, strict=True):
            if one is None or (flow and one.flow != flow):
                continue  # It is no longer kept, or another job has taken its id.
            flow, seen[address] = one.flow, one
            new = [other for other in (*one.awaits, *one.tells) if other not in tried]
            tried.update(new)
            next_ += new if flow else []
    for address, (letter, known) in told.items():
        if address not in seen and len(seen) < most:
            seen[address] = FlowJob(known.task, FLOW_STATE_BY_CODE.get(letter, "removed"), error=known.error)
    return FlowWalk(flow, seen, bool(next_))


async def _visit_job(
    context: ApiContext, address: JobAddress, told: dict[JobAddress, tuple[str, Dependency]]
) -> FlowJob | None:
    """Read one job. Adds what it knows about its dependencies to `told`."""
    name, id = address
    try:
        queue = await context.queue(name)
    except NotFound:
        return None
    there = await context.app._client().find(queue.settings, id)
    if there is None:
        return None
    partition, found = there
    body = found.body()
    mode, awaited = await flow_messages.dependencies_and_mode(partition, id) if body.flow else ("", [])
    for letter, known in awaited:
        told[known.queue, known.id] = letter, known
    info = found.info(queue.name, queue._attempts_of(body.task))
    return FlowJob(
        body.task,
        info.state,
        body.flow,
        info,
        awaits=[(known.queue, known.id) for _, known in awaited],
        tells=[(link.queue, link.id) for link in body.tells],
        blocked=info.state == "delayed" and (found.due_ms or 0) >= NEVER_DUE_MS and not info.waits_for,
        fallback=mode == "rescue",
        error=info.error,
    )


def _steps(context: ApiContext, walked: FlowWalk) -> list[views.FlowStepView]:
    """The steps of a flow, in the order in which they can run."""
    levels = _levels(walked.seen)
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


def _levels(seen: dict[JobAddress, FlowJob]) -> dict[JobAddress, int]:
    """The depth of each job: how many others must end one after another before it."""
    levels: dict[JobAddress, int] = {}
    left = deque(seen)
    turns = 0
    while left and turns <= len(seen) ** 2:
        turns += 1
        address = left.popleft()
        before = [one for one in seen[address].awaits if one in seen]
        if all(one in levels for one in before):
            levels[address] = max((levels[one] + 1 for one in before), default=0)
        else:
            left.append(address)
    return levels | dict.fromkeys(left, 0)


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
            *(walk_flow(context, address, MAX_LISTED_FLOW_JOBS) for address in some)
        ):
            if walked is not None and walked.flow and not met & set(walked.seen):
                flows.append(_flow_view(context, walked))
                met |= set(walked.seen)
        addresses = [address for address in addresses if address not in met]
    flows.sort(key=lambda flow: flow.created_at, reverse=True)
    return views.FlowsView(timestamp=now(), flows=flows[:MAX_LISTED_FLOWS])


def _flow_view(context: ApiContext, walked: FlowWalk) -> views.ShownFlowView:
    kept = {address: one for address, one in walked.seen.items() if one.info is not None}
    levels = _levels(walked.seen)
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
