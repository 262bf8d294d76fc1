"""Sending: enqueue a call together with the headers of a drop-in API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qbull.core.options import Options
from qbull.core.task import TaskSpec
from qbull.job import Job
from qbull.produce.enqueue import Calling
from qbull.queue import Queue


async def enqueue_with_headers(
    queue: Queue,
    spec: TaskSpec,
    options: Options,
    headers: Mapping[str, str],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Job[Any]:
    """Enqueue one job. Without headers this is an enqueue like any other."""
    call: Calling[..., Any] = Calling(queue, spec, options)
    if not headers:
        return await call.enqueue(*args, **kwargs)
    request = call._request([call.check(*args, **kwargs)])
    request.headers = dict(headers)
    return (await queue._producer.enqueue(request))[0]
