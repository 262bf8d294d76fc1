"""Operations: groups of dead letters, and bulk work on all jobs that match."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing, Reply
from qbull.api.filters import coming_moment, filters_of
from qbull.api.patching import patch_of, refusal_of
from qbull.api.problems import ApiProblem, InvalidField
from qbull.api.running_operations import BULK_ACTIONS, OperationRequest
from qbull.core.failures import normal_form
from qbull.core.job_filter import JobFilter, JobFilterArguments
from qbull.core.job_info import JobInfo
from qbull.core.options import Options
from qbull.core.record import State, to_datetime
from qbull.core.redaction import REDACTED
from qbull.manage import bulk, search
from qbull.manage.bulk import BulkOperation, BulkStep
from qbull.manage.dead_letters import MAX_TALLIED_DEAD_LETTERS
from qbull.manage.search import FailureGroup
from qbull.queue import Queue
from qbull.store.audit import filter_facts
from qbull.store.read.finished_since import FINISHED_STATES
from qbull.store.verbs import operations
from qbull.store.verbs.operations import Operation
from qbull.views import jobs as job_views
from qbull.views import operations as views
from qbull.views.access import DoneView
from qbull.views.shape import iso_time, view_of

OPERATION_WAIT_SECONDS = 5.0
"""How long a request waits for a redrive or clean. If it takes longer, it continues in the background."""
MAX_SCANNED_JOBS = 10_000
"""Jobs read to count those that match."""
MAX_SHOWN_OPERATIONS = 50
MAX_FAILURE_GROUPS = 200
"""Groups of dead letters shown, the most frequent."""


async def failures(call: ApiCall[job_views.FailuresQuery, Nothing]) -> job_views.FailuresView:
    queue = await call.context.queue(call.path["queue"])
    filters = filters_of(call.context, call.caller, call.query)
    if not filters and call.query.scan == MAX_TALLIED_DEAD_LETTERS:
        groups = (await call.context.dead_letters(queue).get()).sorted_groups
    else:
        groups = await failure_groups(call.context, queue, call.query.scan, filters)
    shown = [
        await failure_group_view(call.context, queue, group, call.caller)
        for group in groups[:MAX_FAILURE_GROUPS]
    ]
    return job_views.FailuresView(
        timestamp=now(), queue=queue.name, groups=shown, left_out=max(len(groups) - MAX_FAILURE_GROUPS, 0)
    )


async def failure_groups(
    context: ApiContext, queue: Queue, scan: int, filters: JobFilterArguments
) -> list[FailureGroup]:
    """The newest dead letters by error. Hidden values play no part in it."""
    wanted = JobFilter(**cast(Any, {**filters, "hidden": context.redaction.fields}))
    return await search.failures(queue, scan, wanted)


async def failure_group_view(
    context: ApiContext, queue: Queue, group: FailureGroup, caller: Caller | None
) -> job_views.FailureGroupView:
    """The view of a group as this caller may see it; None stands for everybody."""
    redaction = context.redaction
    if not redaction.is_used:
        return view_of(job_views.FailureGroupView, group)
    info: JobInfo | None = await queue.job(group.last).info()
    known = info if info is not None and info.error is not None else None
    last_error = redaction.error(known.error if known else group.last_error, known, caller) or REDACTED
    return view_of(
        job_views.FailureGroupView,
        group,
        fingerprint=redaction.fingerprint(group.fingerprint, caller),
        error=normal_form(last_error),
        last_error=last_error,
    )


async def matching(call: ApiCall[views.MatchingQuery, Nothing]) -> views.MatchingView:
    query = call.query
    queue = await call.context.queue(call.path["queue"])
    filters = filters_of(call.context, call.caller, query)
    answer = partial(views.MatchingView, timestamp=now(), queue=queue.name, state=query.state)
    if not filters:
        return answer(count=getattr(await queue.stats(), query.state), exact=True, looked_at=0)
    client = call.context.app._client()
    seen = BulkStep(0, 0)

    def step(now: BulkStep) -> None:
        nonlocal seen
        seen = now
        if now.looked_at >= MAX_SCANNED_JOBS:
            raise _ScanLimitReached

    wanted = BulkOperation(bulk.count, query.state, search.filter_of(filters))
    try:
        await bulk.run_bulk(client, await client.router.partitions(queue.settings), wanted, step)
    except _ScanLimitReached:
        return answer(count=seen.done, exact=False, looked_at=seen.looked_at)
    return answer(count=seen.done, exact=True, looked_at=seen.looked_at)


class _ScanLimitReached(Exception):
    """The scan limit is reached."""


async def start_operation(call: ApiCall[Nothing, views.NewOperationBody]) -> Reply:
    asked = call.body
    state: State = asked.state or BULK_ACTIONS[asked.action][1]
    if state not in BULK_ACTIONS[asked.action][2]:
        why = f"{asked.action} is for {', '.join(BULK_ACTIONS[asked.action][2])}"
        raise ApiProblem(400, f"body: state: {why}", errors=[InvalidField("state", why)])
    if asked.older_than and state not in FINISHED_STATES:
        why = "applies only to finished jobs"
        raise ApiProblem(400, f"body: olderThan: {why}", errors=[InvalidField("olderThan", why)])
    queue = await call.context.queue(call.path["queue"])
    if asked.reason is not None and asked.action != "cancel":
        why = "applies only to cancel"
        raise ApiProblem(400, f"body: reason: {why}", errors=[InvalidField("reason", why)])
    if asked.patch is not None and asked.action not in ("retry", "redrive"):
        why = "applies only to retry and redrive"
        raise ApiProblem(400, f"body: patch: {why}", errors=[InvalidField("patch", why)])
    act, due = await _rescheduling(queue, asked)
    if asked.reason is not None:
        act = bulk.cancelling(asked.reason)
    request = OperationRequest(
        asked.action,
        queue,
        state,
        filters_of(call.context, call.caller, asked),
        call.caller.name,
        asked.older_than,
        asked.limit,
        asked.rate,
        act,
        due,
        patch_of(call.context, queue, asked.patch),
    )
    return await _started(call, request, 0.0)


async def _rescheduling(
    queue: Queue, asked: views.NewOperationBody
) -> tuple[bulk.BulkAction | None, str | None]:
    """The function of `reschedule` and its time; neither for other actions."""
    is_asked = asked.action == "reschedule"
    if (asked.delay is not None) + (asked.at is not None) != is_asked:
        why = "give delay or at, one of them" if is_asked else "applies only to reschedule"
        field = "delay" if is_asked or asked.delay is not None else "at"
        raise ApiProblem(400, f"body: {field}: {why}", errors=[InvalidField(field, why)])
    if not is_asked:
        return None, None
    at = None if asked.at is None else coming_moment("at", asked.at)
    due_ms, now_ms = await search.reschedule_times(queue, Options(delay=asked.delay, at=at))
    return bulk.rescheduling(due_ms, now_ms), iso_time(to_datetime(due_ms))


async def redrive(call: ApiCall[Nothing, views.RedriveBody]) -> Reply:
    asked = call.body
    queue = await call.context.queue(call.path["queue"])
    filters = filters_of(call.context, call.caller, asked)
    request = OperationRequest(
        "redrive",
        queue,
        "failed",
        filters,
        call.caller.name,
        limit=asked.limit,
        rate=asked.rate,
        patch=patch_of(call.context, queue, asked.patch),
    )
    return await _started(call, request, OPERATION_WAIT_SECONDS)


async def clean_completed(call: ApiCall[Nothing, views.CleanBody]) -> Reply:
    return await _clean(call, "completed")


async def clean_failed(call: ApiCall[Nothing, views.CleanBody]) -> Reply:
    return await _clean(call, "failed")


async def clean_cancelled(call: ApiCall[Nothing, views.CleanBody]) -> Reply:
    return await _clean(call, "cancelled")


async def _clean(call: ApiCall[Nothing, views.CleanBody], state: State) -> Reply:
    queue = await call.context.queue(call.path["queue"])
    age = call.body.grace_period / 1000
    filters = filters_of(call.context, call.caller, call.body)
    request = OperationRequest("clean", queue, state, filters, call.caller.name, age, call.body.limit)
    return await _started(call, request, OPERATION_WAIT_SECONDS)


async def _started(call: ApiCall[Any, Any], request: OperationRequest, wait: float) -> Reply:
    """Start an operation. Status 200 if it ends within `wait` seconds, otherwise 202; Location has its
    address.
    """
    running = call.context.operations
    call.audit_details.update(action=request.action, filter=filter_facts(request.filter_view()))
    operation = await running.start(request)
    call.audit_details["operation"] = operation.id
    if wait:
        operation = await running.until(operation.id, wait)
        call.audit_details["jobs"] = operation.done
    if operation.state == "failed":
        raise ApiProblem(503, f"{request.action} has failed after {operation.done} jobs: {operation.error}")
    ended = operation.state == "done"
    text = f"{request.action}: {operation.done} jobs" if ended else f"{request.action} is running"
    root = call.request.scope.get("root_path", "")
    started = views.StartedView(
        timestamp=now(), operation_id=operation.id, state=operation.state, message=text, count=operation.done
    )
    return Reply(started, 200 if ended else 202, {"location": f"{root}/api/operations/{operation.id}"})


async def list_operations(call: ApiCall[Nothing, Nothing]) -> views.OperationsView:
    store = call.context.store
    found = await operations.newest(store, MAX_SHOWN_OPERATIONS)
    shown = [_operation_view(call, one) for one in found if call.caller.may_use(one.queue)]
    return views.OperationsView(timestamp=now(), operations=shown)


async def one_operation(call: ApiCall[Nothing, Nothing]) -> views.OneOperationView:
    store = call.context.store
    found = await operations.find(store, call.path["operation"])
    call.check_queue(found.queue)
    return views.OneOperationView(timestamp=now(), operation=_operation_view(call, found))


async def stop_operation(call: ApiCall[Nothing, Nothing]) -> DoneView:
    store, id = call.context.store, call.path["operation"]
    found = await operations.find(store, id)
    call.check_queue(found.queue)
    if found.state != "running":
        raise ApiProblem(409, f"operation {id} is {found.state}")
    await call.context.operations.stop(id)
    return DoneView(message=f"operation {id} is being stopped", timestamp=now())


def _operation_view(call: ApiCall[Any, Any], one: Operation) -> views.OperationView:
    return view_of(
        views.OperationView,
        one,
        filter=call.context.redaction.filter(one.filter, call.caller),
        started_at=to_datetime(one.started_ms),
        updated_at=to_datetime(one.updated_ms),
        refusal=refusal_of(call.context, one),
    )


QUEUE_PATH = "/api/queues/{queue}"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/failures",
        role="viewer",
        summary="Group the dead letters by error",
        handler=failures,
        query=job_views.FailuresQuery,
        answer=job_views.FailuresView,
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path=f"{QUEUE_PATH}/matching",
        role="viewer",
        summary="Count the jobs of a state that match a filter",
        handler=matching,
        query=views.MatchingQuery,
        answer=views.MatchingView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/operations",
        role="operator",
        action_roles={"remove": "admin", "clean": "admin"},
        summary="Start a bulk operation on all jobs that match; the header Location has its address",
        handler=start_operation,
        body=views.NewOperationBody,
        answer=views.StartedView,
        status=202,
        answers=(200,),
        problems=(404, 409),
        audit="start operation",
    ),
    Endpoint(
        method="POST",
        path=f"{QUEUE_PATH}/redrive",
        role="operator",
        summary="Redrive dead letters; 202 if it takes longer",
        handler=redrive,
        body=views.RedriveBody,
        body_optional=True,
        answer=views.StartedView,
        answers=(202,),
        problems=(404, 409),
        audit="redrive",
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{QUEUE_PATH}/clean/{state}",
            role="admin",
            summary=f"Delete {state} jobs older than the grace period; 202 if it takes longer",
            handler=handler,
            body=views.CleanBody,
            body_optional=True,
            answer=views.StartedView,
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
        scope="queues",
        summary="List the last operations, the newest first",
        handler=list_operations,
        answer=views.OperationsView,
    ),
    Endpoint(
        method="GET",
        path="/api/operations/{operation}",
        role="viewer",
        scope="queues",
        summary="Show the progress of an operation",
        handler=one_operation,
        answer=views.OneOperationView,
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/operations/{operation}/stop",
        role="operator",
        scope="queues",
        summary="Stop an operation",
        handler=stop_operation,
        answer=DoneView,
        problems=(404, 409),
        audit="stop operation",
    ),
]
