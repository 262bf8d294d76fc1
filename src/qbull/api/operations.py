"""Operations: dead letters in groups, and work on all jobs that match."""

from __future__ import annotations

from functools import partial
from typing import Any

from qbull.api.context import Site, now
from qbull.api.endpoint import Call, Endpoint, Nothing, Reply
from qbull.api.filters import filters_of
from qbull.api.problems import Problem, Wrong
from qbull.api.redaction import HIDDEN
from qbull.api.running_operations import ACTS, Request
from qbull.core.failures import normal_form
from qbull.core.job_filter import Filters, Wanted
from qbull.core.record import JobInfo, State, moment
from qbull.manage import bulk
from qbull.manage.bulk import Step, Work
from qbull.manage.search import FailureGroup
from qbull.queue import Queue
from qbull.store.verbs import operations
from qbull.store.verbs.operations import Operation
from qbull.views import jobs as jobs_wire
from qbull.views import operations as wire
from qbull.views import render as plain
from qbull.views.access import Done
from qbull.views.shape import shaped

WAITED = 5.0
"""Seconds for which a redrive or a clean is waited for; what takes longer goes on, and can be asked about."""
LOOKED_AT = 10_000
"""Jobs that are looked at to count those that match."""
NEWEST = 50
GROUPS = 200
"""Groups of dead letters that are shown, the most frequent."""


async def failures(call: Call[jobs_wire.FailuresQuery, Nothing]) -> jobs_wire.Failures:
    queue = await call.site.queue(call.path["queue"])
    filters = filters_of(call.site, call.caller, call.query)
    groups = await queue.failures(scan=call.query.scan, **filters)
    shown = [await shown_group(call.site, queue, group) for group in groups[:GROUPS]]
    return jobs_wire.Failures(
        timestamp=now(), queue=queue.name, groups=shown, left_out=max(len(groups) - GROUPS, 0)
    )


async def shown_group(site: Site, queue: Queue, group: FailureGroup) -> jobs_wire.FailureGroup:
    """Its error is that of the newest of them, without the values of hidden fields."""
    made = {**plain.failure_group(group), "lastError": group.last_error}
    if site.veil.hides:
        info: JobInfo | None = await queue.job(group.last).info()
        known = info is not None and info.error is not None
        made["lastError"] = site.veil.text(info.error or "", info) if info and known else HIDDEN
        made["error"] = normal_form(made["lastError"])
    return shaped(made, jobs_wire.FailureGroup)


async def matching(call: Call[wire.MatchingQuery, Nothing]) -> wire.Matching:
    query = call.query
    queue = await call.site.queue(call.path["queue"])
    filters = filters_of(call.site, call.caller, query)
    answer = partial(wire.Matching, timestamp=now(), queue=queue.name, state=query.state)
    if not filters:
        return answer(count=getattr(await queue.stats(), query.state), exact=True, looked_at=0)
    client = call.site.app.client()
    seen = Step(0, 0)

    def step(now: Step) -> None:
        nonlocal seen
        seen = now
        if now.looked_at >= LOOKED_AT:
            raise _Enough

    wanted = Work(bulk.count, query.state, Wanted(**filters))
    try:
        await bulk.work(client, await client.partitions(queue.settings), wanted, step)
    except _Enough:
        return answer(count=seen.done, exact=False, looked_at=seen.looked_at)
    return answer(count=seen.done, exact=True, looked_at=seen.looked_at)


class _Enough(Exception):
    """As many were looked at as may be."""


async def start_operation(call: Call[Nothing, wire.NewOperation]) -> Reply:
    asked = call.body
    state: State = asked.state or ACTS[asked.action][1]
    if state not in ACTS[asked.action][2]:
        why = f"{asked.action} is for {', '.join(ACTS[asked.action][2])}"
        raise Problem(400, f"body: state: {why}", errors=[Wrong("state", why)])
    if asked.older_than and state not in bulk.FINISHED:
        why = "is for jobs that have ended"
        raise Problem(400, f"body: olderThan: {why}", errors=[Wrong("olderThan", why)])
    request = Request(
        asked.action,
        await call.site.queue(call.path["queue"]),
        state,
        filters_of(call.site, call.caller, asked),
        call.caller.name,
        asked.older_than,
        asked.limit,
        asked.rate,
    )
    return await _started(call, request, 0.0)


async def redrive(call: Call[Nothing, wire.Redrive]) -> Reply:
    asked = call.body
    filters = Filters(task=asked.task, error_contains=asked.error_contains, fingerprint=asked.fingerprint)
    said = Filters(**{name: value for name, value in filters.items() if value is not None})  # type: ignore[typeddict-item]
    queue = await call.site.queue(call.path["queue"])
    request = Request("redrive", queue, "failed", said, call.caller.name, limit=asked.limit, rate=asked.rate)
    return await _started(call, request, WAITED)


async def clean_completed(call: Call[Nothing, wire.Clean]) -> Reply:
    return await _clean(call, "completed")


async def clean_failed(call: Call[Nothing, wire.Clean]) -> Reply:
    return await _clean(call, "failed")


async def clean_cancelled(call: Call[Nothing, wire.Clean]) -> Reply:
    return await _clean(call, "cancelled")


async def _clean(call: Call[Nothing, wire.Clean], state: State) -> Reply:
    queue = await call.site.queue(call.path["queue"])
    age = call.body.grace_period / 1000
    request = Request("clean", queue, state, Filters(), call.caller.name, age, call.body.limit)
    return await _started(call, request, WAITED)


async def _started(call: Call[Any, Any], request: Request, wait: float) -> Reply:
    """200 where it has ended meanwhile, else 202; the header Location says where to ask."""
    running = call.site.running
    operation = await running.start(request)
    call.notes.update(action=request.action, operation=operation.id, **request.shown())
    if wait:
        operation = await running.until(operation.id, wait)
    if operation.state == "failed":
        raise Problem(503, f"{request.action} has failed after {operation.done} jobs: {operation.error}")
    ended = operation.state == "done"
    text = f"{request.action}: {operation.done} jobs" if ended else f"{request.action} is under way"
    root = call.request.scope.get("root_path", "")
    started = wire.Started(
        timestamp=now(), operation_id=operation.id, state=operation.state, message=text, count=operation.done
    )
    return Reply(started, 200 if ended else 202, {"location": f"{root}/api/operations/{operation.id}"})


async def list_operations(call: Call[Nothing, Nothing]) -> wire.Operations:
    store = call.site.store
    found = await store.patiently(partial(operations.newest, store, NEWEST))
    return wire.Operations(timestamp=now(), operations=[_shown(one) for one in found])


async def one_operation(call: Call[Nothing, Nothing]) -> wire.OneOperation:
    store = call.site.store
    found = await store.patiently(partial(operations.find, store, call.path["operation"]))
    return wire.OneOperation(timestamp=now(), operation=_shown(found))


async def stop_operation(call: Call[Nothing, Nothing]) -> Done:
    store, id = call.site.store, call.path["operation"]
    found = await store.patiently(partial(operations.find, store, id))
    if found.state != "running":
        raise Problem(409, f"operation {id} is {found.state}")
    await call.site.running.stop(id)
    return Done(message=f"operation {id} was told to stop", timestamp=now())


def _shown(one: Operation) -> wire.Operation:
    return wire.Operation(
        id=one.id,
        action=one.action,
        queue=one.queue,
        filter=one.filter,
        by=one.by,
        state=one.state,
        done=one.done,
        looked_at=one.looked_at,
        total=one.total,
        started_at=plain.moment(moment(one.started_ms)) or "",
        updated_at=plain.moment(moment(one.updated_ms)) or "",
        error=one.error,
    )


ONE = "/api/queues/{queue}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path=f"{ONE}/failures",
        role="viewer",
        summary="The dead letters, grouped by what failed",
        handler=failures,
        query=jobs_wire.FailuresQuery,
        answer=jobs_wire.Failures,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{ONE}/matching",
        role="viewer",
        summary="How many jobs of a state match",
        handler=matching,
        query=wire.MatchingQuery,
        answer=wire.Matching,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{ONE}/operations",
        role="admin",
        summary="Retry, redrive, cancel, promote, remove or clean all jobs that match; ask the address in Location how far it is",
        handler=start_operation,
        body=wire.NewOperation,
        answer=wire.Started,
        status=202,
        answers=(200,),
        problems=(404, 409),
        audit="start operation",
    ),
    Endpoint(
        method="POST",
        path=f"{ONE}/redrive",
        role="admin",
        summary="Send dead letters round again; 202 where that takes longer",
        handler=redrive,
        body=wire.Redrive,
        body_optional=True,
        answer=wire.Started,
        answers=(202,),
        problems=(404, 409),
        audit="redrive",
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{ONE}/clean/{state}",
            role="admin",
            summary=f"Forget {state} jobs that ended long enough ago; 202 where that takes longer",
            handler=handler,
            body=wire.Clean,
            body_optional=True,
            answer=wire.Started,
            answers=(202,),
            problems=(404, 409),
            audit=f"clean {state}",
        )
        for state, handler in (
            ("completed", clean_completed),
            ("failed", clean_failed),
            ("cancelled", clean_cancelled),
        )
    ),
    Endpoint(
        method="GET",
        path="/api/operations",
        role="viewer",
        summary="The last operations, the newest first",
        handler=list_operations,
        answer=wire.Operations,
    ),
    Endpoint(
        method="GET",
        path="/api/operations/{operation}",
        role="viewer",
        summary="How far an operation is",
        handler=one_operation,
        answer=wire.OneOperation,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/operations/{operation}/stop",
        role="admin",
        summary="Stop an operation",
        handler=stop_operation,
        answer=Done,
        problems=(404, 409),
        audit="stop operation",
    ),
]
