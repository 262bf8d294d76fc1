"""`job.meta`: values of a user that belong to a job, and that anybody may change.

They travel with the call as a header. `save_meta()` writes them as a published value of the job, so the
dashboard and `app.job(queue, id).published("rq.meta")` show them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from qbull.codecs.context import ValueContext
from qbull.compat.exact_values import as_it_was, strictly_with_types
from qbull.core.codec import decode_untyped
from qbull.core.published import PublishedValue, encode_published_value
from qbull.errors import ArgumentsError, PayloadError, job_not_found
from qbull.job import Job
from qbull.queue import Queue
from qbull.worker.durable_services import published_context

META_NAME = "rq.meta"
"""The name of the header, and of the published value."""
META_HEADER, DESCRIPTION_HEADER, GROUP_HEADER = META_NAME, "rq.description", "rq.group"
RESULT_TTL_HEADER, FAILURE_TTL_HEADER = "rq.result_ttl", "rq.failure_ttl"
PROTECTED_MARK = "~"
"""The start of a header that the codecs of the app have encoded. JSON does not start with it."""


def meta_header(queue: Queue, task: str, meta: Mapping[str, Any]) -> str:
    """The header with the `meta` of a call."""
    if not isinstance(meta, Mapping):
        raise ArgumentsError(f"enqueue(meta={meta!r}): give a dictionary")
    encoded = _encoded(queue, meta)
    if not queue.app._codecs.used:
        return encoded.decode()
    return (
        PROTECTED_MARK + b64encode(queue.app._codecs.protect(_header_context(queue, task), encoded)).decode()
    )


async def load_meta(job: Job[Any]) -> dict[str, Any]:
    """The saved values, or those of the call if none were saved."""
    saved = await job.published(META_NAME)
    if saved is not None:
        return dict(as_it_was(saved))
    queue, (_, found) = job._queue, await job._there()
    body = found.body()
    given = (body.headers or {}).get(META_HEADER)
    if given is None:
        return {}
    if not given.startswith(PROTECTED_MARK):
        return dict(as_it_was(decode_untyped(given.encode())))
    context = _header_context(queue, body.task)
    encoded = queue.app._codecs.open(context, b64decode(given[len(PROTECTED_MARK) :]))
    return dict(as_it_was(decode_untyped(encoded)))


async def save_meta(job: Job[Any], meta: Mapping[str, Any]) -> None:
    """Write the values. The last call counts."""
    queue, (_, found) = job._queue, await job._there()
    app = queue.app
    context = published_context(queue.name, job.id, found.body().task, META_NAME)
    encoded = _encoded(queue, meta)
    content = app._codecs.protect(context, encoded)
    value = PublishedValue(META_NAME, content)
    if await app._client().set_published(queue.settings, job.id, value, app.durability) != "set":
        raise job_not_found(queue.name, job.id)


def _encoded(queue: Queue, meta: Mapping[str, Any]) -> bytes:
    try:
        exact = strictly_with_types(dict(meta))
    except PayloadError as error:
        raise PayloadError(f"{META_NAME}: {error}") from None
    return encode_published_value(META_NAME, exact, queue.app._hooks)


def _header_context(queue: Queue, task: str) -> ValueContext:
    """A call has no id yet when its header is made."""
    return ValueContext("published value", queue.name, task, "", META_NAME.encode())
