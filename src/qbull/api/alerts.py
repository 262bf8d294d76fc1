"""Alerts: what is wrong now, where people are told of it, and whether a message arrives. Who looks and sends is qbull.alerts."""

from __future__ import annotations

import msgspec

from qbull.alerts.deliver import try_all
from qbull.alerts.message import Voice, title_of
from qbull.api.context import Site, now
from qbull.api.endpoint import Call, Endpoint, Nothing
from qbull.core.alerts import Destination
from qbull.core.problems import Message, Open, Said, subject_of, text_of
from qbull.core.record import JobInfo, moment
from qbull.errors import Conflict, NotFound
from qbull.queue import Queue
from qbull.store.verbs import alerts as board
from qbull.views import alerts as wire
from qbull.views import render as plain

SHOWN = 10
"""Messages of each state that are shown, the newest."""


async def alerts(call: Call[Nothing, Nothing]) -> wire.Alerts:
    site = call.site
    known = await site.store.patiently(lambda: board.known(site.store))
    queue = await _queue(site)
    return wire.Alerts(
        timestamp=now(),
        to=[_place(one) for one in site.app.alerts.destinations],
        asking=[one.name for one in await site.queues() if one.settings.alert is not None],
        silenced=queue is not None and (await queue.stats()).paused,
        problems=[_problem(site, one) for one in known.open.values()],
        messages=[] if queue is None else await _messages(site, queue),
    )


async def try_alerts(call: Call[Nothing, Nothing]) -> wire.TriedAlerts:
    app = call.site.app
    if not app.alerts.destinations:
        raise Conflict("alerts go nowhere; set SLACK_WEBHOOK_URL or QBULL_ALERT_URLS")
    tried = await try_all(app.alerts, app.prefix)
    call.notes["places"] = len(tried)
    return wire.TriedAlerts(
        timestamp=now(), tried=[wire.Tried(to=_place(to), error=error) for to, error in tried]
    )


async def _queue(site: Site) -> Queue | None:
    """The one that messages go through; None where none has gone yet."""
    try:
        return await site.queue(board.QUEUE.name)
    except NotFound:
        return None


async def _messages(site: Site, queue: Queue) -> list[wire.AlertMessage]:
    found = [
        *(await queue.search("completed", limit=SHOWN)).jobs,
        *(await queue.search("failed", limit=SHOWN)).jobs,
        *await queue.jobs("waiting", 0, SHOWN),
        *await queue.jobs("delayed", 0, SHOWN),
    ]
    found.sort(key=lambda info: info.created_at, reverse=True)
    voice = Voice(site.app.prefix)
    return [made for info in found[: 2 * SHOWN] if (made := _message(info, voice)) is not None]


def _message(info: JobInfo, voice: Voice) -> wire.AlertMessage | None:
    try:
        message = msgspec.convert(info.payload["message"], Message)
        kind, host, _ = str(info.payload["to"]).split(":", 2)
        to = msgspec.convert({"kind": kind, "host": host}, wire.AlertPlace)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError):  # another version wrote it
        return None
    return wire.AlertMessage(
        id=info.id,
        at=plain.moment(info.created_at) or "",
        to=to,
        text=title_of(message, voice),
        state=info.state,
        error=info.error,
    )


def _problem(site: Site, one: Open) -> wire.AlertProblem:
    problem = one.problem
    text = text_of(Said("resolved" if one.over else "firing", problem, one.since_ms))
    return wire.AlertProblem(
        kind=problem.kind,
        text=f"{subject_of(problem)}: {text}",
        queue=problem.queue or None,
        task=problem.task or None,
        schedule=problem.schedule or None,
        job=problem.job or None,
        reason=None if site.veil.hides else problem.reason or None,
        count=problem.count,
        since=plain.moment(moment(one.since_ms)) or "",
        said=one.times,
        said_at=plain.moment(moment(one.told_ms)) if one.told_ms else None,
        over=one.over,
    )


def _place(to: Destination) -> wire.AlertPlace:
    return wire.AlertPlace(kind=to.kind, host=to.host)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/alerts",
        role="viewer",
        summary="What is wrong now, where people are told of it, and the last messages",
        handler=alerts,
        answer=wire.Alerts,
    ),
    Endpoint(
        method="POST",
        path="/api/alerts/test",
        role="admin",
        summary="Send a message to each place, and say what came of it",
        handler=try_alerts,
        answer=wire.TriedAlerts,
        problems=(409,),
        audit="test alerts",
    ),
]
