"""Edit: encode other arguments for a job that exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from qbull.core.codec import encode_payload
from qbull.core.record import Body
from qbull.errors import ArgumentsError

if TYPE_CHECKING:
    from qbull.queue import Queue


def encode_edited(queue: Queue, id: str, body: Body, payload: Mapping[str, Any]) -> bytes:
    """Encode new arguments for a job. They must not change its key.

    They are checked if the app has the code of the task.
    """
    spec, limit = queue.tasks.get(body.task), queue.app.payload_limit
    if spec is None:
        body.payload = encode_payload(body.task, payload, limit, queue.app._hooks)
        return queue._producer.protect(id, body)
    encoded, call = spec.signature.encode((), dict(payload), limit)
    if spec.key is not None:
        key = spec.key.apply(msgspec.structs.asdict(call))
        stored = queue._open_payload(id, body)
        if key != body.key and spec.key.apply(spec.signature.arguments(stored)) == body.key:
            raise ArgumentsError(
                f'task "{spec.name}": these arguments have the key "{key}", the job has "{body.key}"; '
                "enqueue a new job, and remove() this one"
            )
    body.payload = encoded
    return queue._producer.protect(id, body)
