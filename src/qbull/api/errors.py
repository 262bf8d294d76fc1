"""Errors: kinds of permanent failures, counted as they happen, over all queues and one by one.

With hidden fields, the name of a kind follows from the error as it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from qbull.api.auth import Caller
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.failures import fingerprint, normal_form
from qbull.core.record import to_datetime
from qbull.core.redaction import REDACTED
from qbull.errors import NotFound
from qbull.manage import acknowledge
from qbull.queue import Queue
from qbull.store.read.error_kinds import MAX_ERROR_MINUTES, OTHER_KINDS, ErrorKind, read_error_kinds
from qbull.views import errors as views
from qbull.views.access import DoneView
from qbull.views.shape import view_of

ACKNOWLEDGEMENT_PATH = "/api/queues/{queue}/errors/{fingerprint}/acknowledgement"
MAX_SHOWN_KINDS = 100
"""Kinds in an answer, the most frequent."""


async def list_errors(call: ApiCall[views.ErrorsQuery, Nothing]) -> views.ErrorsView:
    shown: list[views.ErrorKindView] = []
    others = 0
    for queue in await call.context.queues_of(call.caller):
        kinds = await recent_kinds(queue, call.query.minutes)
        some = [kind for kind in kinds if kind.fingerprint != OTHER_KINDS][:MAX_SHOWN_KINDS]
        others += sum(kind.count for kind in kinds) - sum(kind.count for kind in some)
        shown += await kind_views(call.context, queue, some, call.caller)
    shown.sort(key=lambda kind: (-kind.count, kind.queue))
    others += sum(kind.count for kind in shown[MAX_SHOWN_KINDS:])
    return views.ErrorsView(
        timestamp=now(), minutes=call.query.minutes, kinds=shown[:MAX_SHOWN_KINDS], others=others
    )


async def error_history(call: ApiCall[views.ErrorsQuery, Nothing]) -> views.ErrorHistoryView:
    queue = await call.context.queue(call.path["queue"])
    kind = await _asked_kind(call, queue, call.query.minutes)
    [shown] = await kind_views(call.context, queue, [kind], call.caller)
    history = [
        views.ErrorMinuteView(at=datetime.fromtimestamp(minute * 60, UTC), count=n)
        for minute, n in sorted(kind.minutes.items())
    ]
    return views.ErrorHistoryView(timestamp=now(), kind=shown, history=history)


async def acknowledge_error(call: ApiCall[Nothing, views.AcknowledgeBody]) -> DoneView:
    queue = await call.context.queue(call.path["queue"])
    kind = await _asked_kind(call, queue, 1)
    await acknowledge.acknowledge(queue, kind.fingerprint, call.body.note, call.caller.name)
    call.context.overviews.clear()
    return DoneView(message=f"the error {kind.fingerprint} is acknowledged", timestamp=now())


async def withdraw_acknowledgement(call: ApiCall[Nothing, Nothing]) -> DoneView:
    queue = await call.context.queue(call.path["queue"])
    kind = await _asked_kind(call, queue, 1)
    await acknowledge.withdraw(queue, kind.fingerprint, call.caller.name)
    call.context.overviews.clear()
    return DoneView(message=f"the error {kind.fingerprint} is not acknowledged any more", timestamp=now())


async def _asked_kind(call: ApiCall[Any, Any], queue: Queue, minutes: int) -> ErrorKind:
    """The kind of error in the path, by the name that this caller sees."""
    name = call.path["fingerprint"]
    for kind in await read_error_kinds(await queue._partitions(), minutes):
        if kind.total and (await _kind_view(call.context, queue, kind, call.caller)).fingerprint == name:
            return kind
    raise NotFound(f'queue "{queue.name}": no job has failed with the kind of error {name[:40]} lately')


async def recent_kinds(queue: Queue, minutes: int) -> list[ErrorKind]:
    """The kinds with which jobs of a queue failed in the last minutes, the most frequent first."""
    kinds = await read_error_kinds(await queue._partitions(), min(minutes, MAX_ERROR_MINUTES))
    return [kind for kind in kinds if kind.count]


async def kind_views(
    context: ApiContext, queue: Queue, kinds: Sequence[ErrorKind], caller: Caller | None
) -> list[views.ErrorKindView]:
    """Kinds of errors as this caller may see them; None stands for everybody."""
    noted = await _acknowledged(queue, {kind.fingerprint for kind in kinds})
    shown = [await _kind_view(context, queue, kind, caller) for kind in kinds]
    return [
        replace(view, acknowledged=noted.get(kind.fingerprint))
        for view, kind in zip(shown, kinds, strict=True)
    ]


async def _acknowledged(queue: Queue, kinds: set[str]) -> dict[str, views.AcknowledgedView]:
    """Which of these kinds somebody knows of."""
    states = await acknowledge.states(queue, kinds)
    return {
        name: view_of(views.AcknowledgedView, known.acknowledgement, returned=known.returned)
        for name, known in states.items()
    }


async def _kind_view(
    context: ApiContext, queue: Queue, kind: ErrorKind, caller: Caller | None
) -> views.ErrorKindView:
    redaction = context.redaction
    info = await queue.job(kind.last_id).info() if kind.last_id else None
    known = info if info is not None and info.error is not None else None
    last_error = redaction.error(known.error if known else kind.error, known, caller) or REDACTED
    name = fingerprint(last_error) if redaction.has_hidden_fields else kind.fingerprint
    return views.ErrorKindView(
        queue=queue.name,
        fingerprint=redaction.fingerprint(name, caller),
        error=normal_form(last_error),
        last_error=last_error,
        task=None if info is None else info.task,
        count=kind.count,
        total=kind.total,
        first_at=to_datetime(kind.first_ms),
        last_at=to_datetime(kind.last_ms),
        last=kind.last_id,
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/errors",
        role="viewer",
        scope="queues",
        summary="List the kinds of errors with which jobs failed lately, counted as they failed",
        handler=list_errors,
        query=views.ErrorsQuery,
        answer=views.ErrorsView,
    ),
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/errors/{fingerprint}",
        role="viewer",
        summary="Show one kind of error with its history",
        handler=error_history,
        query=views.ErrorsQuery,
        answer=views.ErrorHistoryView,
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path=ACKNOWLEDGEMENT_PATH,
        role="operator",
        summary="Acknowledge a kind of error with a note, until it reappears or fails far more often",
        handler=acknowledge_error,
        body=views.AcknowledgeBody,
        answer=DoneView,
        problems=(404,),
        audit="acknowledge error",
    ),
    Endpoint(
        method="DELETE",
        path=ACKNOWLEDGEMENT_PATH,
        role="operator",
        summary="Withdraw the acknowledgement of a kind of error",
        handler=withdraw_acknowledgement,
        answer=DoneView,
        problems=(404,),
        audit="withdraw acknowledgement",
    ),
]
