"""Events: the stream of server-sent events. It ends with the server, or when the credentials expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta
from starlette.responses import StreamingResponse

from qbull.api.auth import Caller
from qbull.api.context import ApiContext
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.live_stream import MAX_CALLER_LISTENERS, EventListener, StreamEvent
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.digits import whole_number
from qbull.core.flow import NEVER_DUE_MS
from qbull.views.shape import ResourceName, Shape

STREAM_HEARTBEAT_SECONDS = 15.0
"""A heartbeat keeps proxies from closing a silent stream; the credentials are checked at the same time."""
FIRST_EVENT_TIMEOUT_SECONDS = 5.0
STREAM_RETRY_MS = 2000
"""The pause before a browser that lost the stream connects again."""
QUEUE_EVENTS = ("snapshot", "stats", "job", "progress", "fresh", "gap", "bye")
MAX_WATCHED_JOBS = 20
"""Jobs whose progress one stream reports."""


class EventsQuery(Shape, kw_only=True):
    """Listen to all queues or one; with a job, also to that job's progress.

    `watch` names more jobs as `queue/id`, with commas between them; a comma or slash in an id is
    percent-encoded. With `freshness`, an event `fresh` says about once a second that the servers answer.
    """

    queue: ResourceName | None = None
    job: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    watch: Annotated[str, Meta(min_length=3, max_length=8000)] | None = None
    freshness: bool = False


async def events(call: ApiCall[EventsQuery, Nothing]) -> StreamingResponse:
    query, live = call.query, call.context.broadcaster
    if query.job is not None and query.queue is None:
        raise ApiProblem(
            400, "query: job: give its queue too", errors=[InvalidField("job", "give its queue too")]
        )
    if query.queue is not None:
        call.check_queue(query.queue)
        await call.context.queue(query.queue)
    watched = _watched(query)
    for queue, _ in watched:
        call.check_queue(queue)
    if live.full or call.context.shutting_down.is_set():
        raise ApiProblem(503, "too many streams are open", headers={"retry-after": "5"})
    after = _last_seen(call.request.headers.get("last-event-id", ""))
    caller = call.caller.token or call.caller.name
    if live.is_full_for(caller):
        raise ApiProblem(
            429,
            f"{call.caller.name} has {MAX_CALLER_LISTENERS} streams open; close one of them",
            headers={"retry-after": "5"},
        )
    listener = EventListener(query.queue, watched, caller, call.caller.queues, freshness=query.freshness)
    live.subscribe(listener)
    try:
        first = await _first(call.context, listener, after)
    except BaseException:
        await live.leave(listener)
        raise
    return StreamingResponse(
        _stream(call.context, call.caller, listener, first),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


def _watched(query: EventsQuery) -> frozenset[tuple[str, str]]:
    """The jobs whose progress is reported, as queue and id."""
    jobs = {(query.queue, query.job)} if query.queue is not None and query.job is not None else set()
    for one in query.watch.split(",") if query.watch is not None else ():
        queue, _, id = one.partition("/")
        jobs.add((unquote(queue), unquote(id)))
    if len(jobs) > MAX_WATCHED_JOBS or not all(queue and id for queue, id in jobs):
        why = f"give up to {MAX_WATCHED_JOBS} jobs as queue/id, with commas between them"
        raise ApiProblem(400, f"query: watch: {why}", errors=[InvalidField("watch", why)])
    return frozenset(jobs)


def _last_seen(id: str) -> int | None:
    """The id of the last event that a caller has seen; None if there is none."""
    number = whole_number(id)
    if id and (number is None or number > NEVER_DUE_MS):
        why = "is no id of an event; leave it out to hear what happens from now on"
        raise ApiProblem(400, f"Last-Event-ID: {why}", errors=[InvalidField("Last-Event-ID", why)])
    return number


async def _first(context: ApiContext, listener: EventListener, after: int | None) -> list[StreamEvent]:
    """The events since the last one seen, and the current state."""
    try:
        async with asyncio.timeout(FIRST_EVENT_TIMEOUT_SECONDS):
            snapshot = await context.broadcaster.snapshot(listener)
            listener.forget_stats()  # the snapshot has them
            missed = [] if after is None else await context.broadcaster.since(after, listener)
    except TimeoutError:
        raise ApiProblem(
            503, "the job server is unavailable; try again", headers={"retry-after": "2"}
        ) from None
    return [*missed, snapshot]


async def _stream(
    context: ApiContext, caller: Caller, listener: EventListener, first: list[StreamEvent]
) -> AsyncGenerator[bytes, None]:
    ending = asyncio.create_task(context.shutting_down.wait())
    coming = asyncio.create_task(listener.next())
    try:
        yield b"retry: %d\n\n" % STREAM_RETRY_MS
        yield b"".join(event.encoded() for event in first)
        checked = time.monotonic()
        while True:
            wait = max(checked + STREAM_HEARTBEAT_SECONDS - time.monotonic(), 0)
            await asyncio.wait([ending, coming], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                yield StreamEvent("bye", b'{"reason":"the server ends"}').encoded()
                return
            if coming.done():
                some = coming.result()
                coming = asyncio.create_task(listener.next())
                yield b"".join(event.encoded() for event in some)
            if time.monotonic() - checked >= STREAM_HEARTBEAT_SECONDS:
                checked = time.monotonic()
                if not await context.auth.still_valid(caller):
                    yield StreamEvent(
                        "bye", b'{"reason":"the session or token is not valid any more"}'
                    ).encoded()
                    return
                yield b": still here\n\n"
    finally:
        ending.cancel()
        coming.cancel()
        await context.broadcaster.leave(listener)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/events",
        role="viewer",
        scope="queues",
        summary=f"Stream events: {', '.join(QUEUE_EVENTS)}; resumes after Last-Event-ID",
        handler=events,
        query=EventsQuery,
        answer=str,
        media="text/event-stream",
        events=QUEUE_EVENTS,
        problems=(404,),
    )
]
