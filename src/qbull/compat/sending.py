"""Sending: enqueue a call together with headers of the shims' own, within the user's middleware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from qbull.core.codec import decode_untyped
from qbull.core.task import TaskSpec
from qbull.job import Job
from qbull.middleware import Enqueueing
from qbull.options import Options
from qbull.queue import Queue
from qbull.task import Call


async def enqueue_with_headers(
    queue: Queue,
    spec: TaskSpec,
    options: Options,
    headers: Mapping[str, str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Job[Any]:
    """One job. Without headers this is an enqueue like any other."""
    call: Call[..., Any] = Call(queue, spec, options)
    if not headers:
        return await call.enqueue(*args, **kwargs)
    payload = call.step(*args, **kwargs).arguments.payload
    asked = Enqueueing(queue.name, spec.name, [decode_untyped(payload)], dict(headers))

    async def enqueue() -> list[Job[Any]]:
        within: Call[..., Any] = Call(queue, spec, replace(options, headers=asked.headers))
        return [await within.enqueue(*args, **kwargs)]

    return (await queue.app.middleware.enqueue(asked, enqueue))[0]
