"""Alerts: open problems, destinations, and the last messages. The package qbull.alerts detects and sends."""

from __future__ import annotations

import msgspec

from qbull.alerts.deliver import send_test_messages
from qbull.alerts.message import MessageSender, title_of
from qbull.api.context import ApiContext, now
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.core.alerts import Destination
from qbull.core.job_info import JobInfo
from qbull.core.problems import AlertNotification, OpenProblem, ProblemNotice, subject_of, text_of
from qbull.core.record import to_datetime
from qbull.errors import Conflict, NotFound
from qbull.queue import Queue
from qbull.store.verbs import alerts as problem_store
from qbull.views import alerts as views

MAX_SHOWN_MESSAGES = 10
"""Messages shown of each state, the newest."""


async def alerts(call: ApiCall[Nothing, Nothing]) -> views.AlertsView:
    context = call.context
    known = await problem_store.read_known_problems(context.store)
    queue = await _queue(context)
    return views.AlertsView(
        timestamp=now(),
        to=[_destination_view(one) for one in context.app.alerts.destinations],
        asking=[one.name for one in await context.queues() if one.settings.alert is not None],
        silenced=queue is not None and (await queue.stats()).paused,
        problems=[_problem_view(context, one) for one in known.open.values()],
        messages=[] if queue is None else await _messages(context, queue),
    )


async def try_alerts(call: ApiCall[Nothing, Nothing]) -> views.TriedAlertsView:
    app = call.context.app
    if not app.alerts.destinations:
        raise Conflict("no alert destination is configured; set QBULL_SLACK_WEBHOOK_URL or QBULL_ALERT_URLS")
    tried = await send_test_messages(app.alerts, app.prefix)
    call.audit_details["places"] = len(tried)
    return views.TriedAlertsView(
        timestamp=now(), tried=[views.TriedView(to=_destination_view(to), error=error) for to, error in tried]
    )


async def _queue(context: ApiContext) -> Queue | None:
    """The queue that carries alert messages; None before the first message."""
    try:
        return await context.queue(problem_store.ALERT_QUEUE.name)
    except NotFound:
        return None


async def _messages(context: ApiContext, queue: Queue) -> list[views.AlertMessageView]:
    found = [
        *(await queue.search("completed", limit=MAX_SHOWN_MESSAGES)).jobs,
        *(await queue.search("failed", limit=MAX_SHOWN_MESSAGES)).jobs,
        *await queue.jobs("waiting", 0, MAX_SHOWN_MESSAGES),
        *await queue.jobs("delayed", 0, MAX_SHOWN_MESSAGES),
    ]
    found.sort(key=lambda info: info.created_at, reverse=True)
    sender = MessageSender(context.app.prefix)
    return [
        made for info in found[: 2 * MAX_SHOWN_MESSAGES] if (made := _message_view(info, sender)) is not None
    ]


def _message_view(info: JobInfo, sender: MessageSender) -> views.AlertMessageView | None:
    try:
        message = msgspec.convert(info.payload["message"], AlertNotification)
        kind, host, _ = str(info.payload["to"]).split(":", 2)
        to = msgspec.convert({"kind": kind, "host": host}, views.AlertDestinationView)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError):  # Another version wrote it.
        return None
    return views.AlertMessageView(
        id=info.id,
        at=info.created_at,
        to=to,
        text=title_of(message, sender),
        state=info.state,
        error=info.error,
    )


def _problem_view(context: ApiContext, one: OpenProblem) -> views.AlertProblemView:
    problem = one.problem
    text = text_of(ProblemNotice("resolved" if one.over else "firing", problem, one.since_ms))
    return views.AlertProblemView(
        kind=problem.kind,
        text=f"{subject_of(problem)}: {text}",
        queue=problem.queue or None,
        task=problem.task or None,
        schedule=problem.schedule or None,
        job=problem.job or None,
        reason=None if context.redaction.is_used else problem.reason or None,
        count=problem.count,
        since=to_datetime(one.since_ms),
        said=one.times,
        said_at=to_datetime(one.told_ms) if one.told_ms else None,
        over=one.over,
    )


def _destination_view(to: Destination) -> views.AlertDestinationView:
    return views.AlertDestinationView(kind=to.kind, host=to.host)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/alerts",
        role="viewer",
        summary="List open problems, alert destinations and the last messages",
        handler=alerts,
        answer=views.AlertsView,
    ),
    Endpoint(
        method="POST",
        path="/api/alerts/test",
        role="admin",
        summary="Send a test message to each destination and report the outcome",
        handler=try_alerts,
        answer=views.TriedAlertsView,
        problems=(409,),
        audit="test alerts",
    ),
]
