"""ValueContext: the one place that a protected value may be read in.

A signature or an encryption covers the context together with the value. So nobody without a key can pass a
value off as that of another queue, task or job, or as one of another kind.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from qbull.core.record import Body, ExtendedBody

Purpose = Literal[
    "payload", "unique payload", "result", "schedule", "step", "signal", "stream value", "published value"
]
"""The kind of value. A payload of a unique job is bound to the job's unique name instead of its id, because
such a job takes over the arguments of later calls.
"""

_encode_bound = msgspec.json.Encoder(order="deterministic").encode


class ValueContext(NamedTuple):
    """The place of a value.

    Attributes:
        purpose: The kind of value.
        queue: The queue of the job.
        task: The task of the job.
        id: The id of the job, or the name of the schedule.
        more: Anything else that the value holds for, such as the name of a step.
    """

    purpose: Purpose
    queue: str
    task: str
    id: str
    more: bytes = b""

    def binding(self) -> bytes:
        """The context as bytes, each part with its length, so that no two contexts have the same bytes."""
        parts = (self.purpose.encode(), self.queue.encode(), self.task.encode(), _bytes(self.id), self.more)
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    def earlier_binding(self) -> bytes:
        """The context as the first build of 0.1.0 wrote it: without the id."""
        purpose = "result" if self.purpose == "result" else "payload"
        return b"\0".join((purpose.encode(), self.queue.encode(), self.task.encode()))

    @property
    def shown(self) -> str:
        """The value in an error message."""
        if self.purpose == "schedule":
            return f'schedule "{self.id}": it'
        return f'task "{self.task}": its {"payload" if self.purpose == "unique payload" else self.purpose}'


def payload_context(queue: str, id: str, body: Body) -> ValueContext:
    """The context of a job's arguments.

    Besides the id it covers the key of the job, the headers of middleware, and the jobs of a flow that it
    waits for.
    """
    more = b""
    if not isinstance(body, ExtendedBody):
        more = b"" if body.key is None else _encode_bound([body.key, None, None])
    elif body.key is not None or body.headers or body.awaits:
        awaits = [digests.hex() for digests in body.awaits]
        more = _encode_bound([body.key, body.headers or None, awaits or None])
    if isinstance(body, ExtendedBody) and body.bound_to:
        return ValueContext("unique payload", queue, body.task, body.bound_to, more)
    return ValueContext("payload", queue, body.task, id, more)


def result_context(queue: str, id: str, task: str) -> ValueContext:
    """The context of a job's result."""
    return ValueContext("result", queue, task, id)


def _bytes(id: str) -> bytes:
    return id.encode("utf-8", "surrogateescape")
