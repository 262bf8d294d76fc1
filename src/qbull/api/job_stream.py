"""The stream of a job as server-sent events: its values so far, then each value as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec
from starlette.responses import Response, StreamingResponse

from qbull.api.auth import Caller
from qbull.api.context import ApiContext
from qbull.api.endpoint import ApiCall, Endpoint, Nothing
from qbull.api.events import STREAM_HEARTBEAT_SECONDS, STREAM_RETRY_MS
from qbull.api.jobs import JOB_PATH, handle_of, info_of
from qbull.api.live_stream import MAX_CALLER_LISTENERS, MAX_LISTENERS, StreamEvent
from qbull.api.problems import ApiProblem, InvalidField
from qbull.core.digits import whole_number
from qbull.errors import MAX_COUNT, QbullError
from qbull.job import Job

JOB_EVENTS = ("value", "gap", "end", "bye")
_DONE = object()


async def job_stream(call: ApiCall[Nothing, Nothing]) -> Response:
    context, caller = call.context, call.caller
    info = await info_of(call)
    after = _position(call.request.headers.get("last-event-id", ""))
    handle = await handle_of(call)
    if after and info.finished_at is not None and not await _has_more(handle, after):
        # This answer keeps browsers from connecting again.
        return Response(status_code=204)
    _refuse_too_many(context, caller)
    return StreamingResponse(
        _events(context, caller, handle, after),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


def _position(id: str) -> int:
    """The position behind which a caller continues; 0 for the first value."""
    number = whole_number(id) if id else 0
    if number is None or number > MAX_COUNT:
        why = "is no id of an event; leave it out to start with the first value"
        raise ApiProblem(400, f"Last-Event-ID: {why}", errors=[InvalidField("Last-Event-ID", why)])
    return number


async def _has_more(handle: Job[object], after: int) -> bool:
    stream = handle.stream(after=after)
    try:
        async for _ in stream:
            return True
    finally:
        await stream.aclose()
    return False


def _refuse_too_many(context: ApiContext, caller: Caller) -> None:
    name = caller.token or caller.name
    if (
        context.shutting_down.is_set()
        or context.job_streams.total() + context.broadcaster.listeners >= MAX_LISTENERS
    ):
        raise ApiProblem(503, "too many streams are open", headers={"retry-after": "5"})
    if context.job_streams[name] >= MAX_CALLER_LISTENERS:
        raise ApiProblem(
            429,
            f"{caller.name} has {MAX_CALLER_LISTENERS} streams of jobs open; close one of them",
            headers={"retry-after": "5"},
        )


async def _events(
    context: ApiContext, caller: Caller, handle: Job[object], after: int
) -> AsyncGenerator[bytes, None]:
    name, stream = caller.token or caller.name, handle.stream(after=after)
    context.job_streams[name] += 1
    ending = asyncio.create_task(context.shutting_down.wait())
    coming = asyncio.ensure_future(anext(stream, _DONE))
    checked, missed = time.monotonic(), 0
    try:
        yield b"retry: %d\n\n" % STREAM_RETRY_MS
        while True:
            wait = max(checked + STREAM_HEARTBEAT_SECONDS - time.monotonic(), 0)
            await asyncio.wait([ending, coming], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                yield _bye("the server ends")
                return
            if coming.done():
                value = coming.result()
                if stream.missed > missed:
                    yield StreamEvent("gap", b'{"leftOut":%d}' % (stream.missed - missed)).encoded()
                    missed = stream.missed
                if value is _DONE:
                    yield StreamEvent("end", msgspec.json.encode({"state": await handle.state()})).encoded()
                    return
                shown = msgspec.json.encode(context.redaction.value(value, caller))
                yield StreamEvent("value", shown, at=stream.position).encoded()
                coming = asyncio.ensure_future(anext(stream, _DONE))
            if time.monotonic() - checked >= STREAM_HEARTBEAT_SECONDS:
                checked = time.monotonic()
                if not await context.auth.still_valid(caller):
                    yield _bye("the session or token is not valid any more")
                    return
                yield b": still here\n\n"
    except QbullError as error:
        yield _bye(str(error))
    finally:
        ending.cancel()
        coming.cancel()
        await asyncio.wait([coming])
        await stream.aclose()
        context.job_streams[name] -= 1


def _bye(reason: str) -> bytes:
    return StreamEvent("bye", msgspec.json.encode({"reason": reason})).encoded()


ENDPOINTS = [
    Endpoint(
        method="GET",
        path=f"{JOB_PATH}/stream",
        role="viewer",
        summary=f"Stream the values that a job emits: {', '.join(JOB_EVENTS)}; resumes after Last-Event-ID",
        handler=job_stream,
        answer=str,
        answers=(204,),
        media="text/event-stream",
        events=JOB_EVENTS,
        problems=(404,),
    )
]
