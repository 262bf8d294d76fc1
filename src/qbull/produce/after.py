"""Enqueue a job that waits for jobs which exist already: a flow of one job.

The job is enqueued first and then follows the others (lua/flow_follow.lua), so it is there when one of them
ends. If the caller dies in between, workers find the endings when they recheck jobs that wait, as long as the
others are kept. Both steps may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbull.core.flow import (
    HAS_DEPENDENCIES_FLAG,
    MAX_FLOW_STEPS,
    Dependency,
    DependencyFailureMode,
    Dependent,
    FlowJobSeed,
    FlowPlan,
    Follower,
    job_digest,
    with_flow_flags,
)
from qbull.core.ids import new_token
from qbull.core.record import body_of, repack
from qbull.core.route import digest
from qbull.errors import ArgumentsError, NotConfirmed, job_not_found
from qbull.job import Job
from qbull.produce.chain import Request
from qbull.produce.client import Client
from qbull.produce.offload import offload_plan
from qbull.store.verbs.flow_messages import dependencies_of, follow, followers_of

if TYPE_CHECKING:
    from qbull.queue import Queue

JobToFollow = tuple["Queue", str]


async def enqueue_after(
    request: Request, jobs: Sequence[JobToFollow], mode: DependencyFailureMode
) -> Job[Any]:
    """Enqueue the one call of a request after jobs of the same app, within its tracing and middleware.

    Args:
        request: the call.
        jobs: the queue and the id of each job that it waits for.
        mode: its reaction if one of them does not complete: "stop" or "continue".
    """
    if len(jobs) > MAX_FLOW_STEPS:
        raise ArgumentsError(f"a job waits for at most {MAX_FLOW_STEPS:,} others")

    async def send() -> list[list[Job[Any]]]:
        return [[await _send(request, jobs, mode)]]

    chain = request.queue.app._chain
    return (await send() if chain is None else await chain.run([request], send, request))[0][0]


async def _send(request: Request, jobs: Sequence[JobToFollow], mode: DependencyFailureMode) -> Job[Any]:
    queue = request.queue
    app = queue.app
    client = app._client()
    awaits = [await _dependency(client, *address) for address in jobs]
    layout = await queue._producer.layout(client, app.durability)
    options = request.carried(request.options)
    placed = queue._producer.place(layout, request.task, request.calls[0], options, is_protected=True)
    id, flow = placed.job.id, new_token()
    body = body_of(placed.job.record)
    body.flow = flow
    if app._codecs.used:
        body.awaits = [job_digest(each.queue, each.task, each.id) for each in awaits]
        body.payload = queue._producer.protect(id, body)
    record = with_flow_flags(repack(placed.job.record, body), HAS_DEPENDENCIES_FLAG)
    seed = FlowJobSeed(
        queue.name, id, placed.affinity, placed.has_custom_id, placed.job.when, record, mode, awaits
    )
    confirmed = client.store.confirmed(app.durability) if app.durability is not None else None
    try:
        plan = await offload_plan(app, FlowPlan(flow, [seed]))
        created = await client.flows.start(plan, confirmed)
    except NotConfirmed as error:
        raise error.of(queue.name, id) from None
    if created:
        for position, (dependency, (other, _)) in enumerate(zip(awaits, jobs, strict=True)):
            follower = Follower(Dependent(queue.name, id, placed.affinity, position), flow)
            call = partial(follow, id=dependency.id, follower=follower, server=confirmed)
            word = await client.on_job(other.settings, dependency.id, call)
            if word == "unknown":
                await client.flows.tell_removed(follower, dependency)
    return Job(id, created, queue, request.decode)


async def _dependency(client: Client, queue: Queue, id: str) -> Dependency:
    there = await client.find(queue.settings, id)
    if there is None:
        raise job_not_found(queue.name, id)
    body = there[1].body()
    together = digest(body.key) if body.key is not None and queue.settings.lane_limit else None
    return Dependency(queue.name, id, body.task, together=together)


async def jobs_before(job: Job[Any]) -> list[tuple[str, str]]:
    """The queue and the id of each job that a job waits for, or has waited for."""
    there = await job._queue.app._client().find(job._queue.settings, job.id)
    if there is None:
        raise job_not_found(job.queue, job.id)
    return [(each.queue, each.id) for _, each in await dependencies_of(there[0], job.id)]


async def ids_behind(job: Job[Any]) -> list[str]:
    """The ids of the jobs that have followed a job, if they still exist."""
    app = job._queue.app
    client = app._client()
    there = await client.find(job._queue.settings, job.id)
    if there is None:
        raise job_not_found(job.queue, job.id)
    found = []
    for follower in await followers_of(there[0], job.id):
        queue = app.queues.get(follower.dependent.queue)
        if queue is None or await client.find(queue.settings, follower.dependent.id) is not None:
            found.append(follower.dependent.id)
    return found
