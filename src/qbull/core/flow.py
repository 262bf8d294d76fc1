"""A flow: jobs that wait for other jobs, as they are sent and as Redis stores them.

The record of a flow's job lists the jobs that wait for its end (`Dependent`). Beside the record of a waiting
job is one `Dependency` for each job that it waits for. A flow that is being enqueued is a `FlowPlan`: the
jobs that are not enqueued yet. A job is enqueued before those that it waits for, so it is always there when
one of them ends.
"""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec

DependencyFailureMode: TypeAlias = Literal["stop", "continue", "rescue"]
"""The reaction of a job if a job that it waits for does not complete.

"stop" ends as well and "continue" runs all the same. "rescue" runs only in that case.
"""

HAS_DEPENDENTS_FLAG, HAS_DEPENDENCIES_FLAG = 8, 16
"""Flags in the third byte of a record: others wait for the job; the job waits for others."""
WAITING_LETTER = "w"
COMPLETED_LETTER = "c"
NOT_NEEDED_LETTER = "u"
NOT_COMPLETED_LETTERS = "fx-tu"
"""The letters for how a job ended."""
NEVER_DUE_MS = 253_402_300_799_000
"""The due time of a job that waits for others, as in lua/lib/flow.lua: the end of the year 9999."""
MAX_FLOW_STEPS = 10_000
FLOW_LIMIT_BYTES = 8 << 20
JOB_DIGEST_BYTES = 16


class Dependent(msgspec.Struct, array_like=True, frozen=True):
    """A job that waits for another one.

    Args:
        queue: its queue.
        id: its id.
        together: the digest of its key, by which its partition is found.
        position: which of its dependencies the other job is.
        unless: the letters of the ends (lua/lib/flow.lua) that it does not hear of, because another job
            stands in then.
        is_fallback: whether it runs only if the other job does not complete.
        call: the name of the call, if a durable job has called the other job.
    """

    queue: str
    id: str
    together: bytes | None
    position: int
    unless: str = ""
    is_fallback: bool = False
    call: str = ""


class Follower(msgspec.Struct, array_like=True, frozen=True):
    """A job that has started to wait for another one after that was enqueued, and the flow that it is in."""

    dependent: Dependent
    flow: str

    @property
    def name(self) -> str:
        """A name that no other follower of the same job has."""
        return f"{self.dependent.position}:{self.dependent.queue}:{self.dependent.id}"


class Dependency(msgspec.Struct, array_like=True, frozen=True):
    """A job that another one waits for. It has a result or an error after its end.

    `together` helps to find it, as in `Dependent`.
    """

    queue: str
    id: str
    task: str
    result: bytes | None = None
    error: str | None = None
    stacktrace: str | None = None
    stored: str = ""
    together: bytes | None = None


def job_digest(queue: str, task: str, id: str) -> bytes:
    """A short name of a job for the payload of a job that waits for it."""
    parts = (queue.encode(), task.encode(), id.encode("utf-8", "surrogateescape"))
    named = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.sha256(named).digest()[:JOB_DIGEST_BYTES]


class FlowJobSeed(msgspec.Struct, array_like=True, frozen=True):
    """A job of a flow that is not enqueued yet. `given`: the caller chose its id."""

    queue: str
    id: str
    together: bytes | None
    given: bool
    when: int | str
    record: bytes
    mode: DependencyFailureMode = "stop"
    awaits: list[Dependency] = []
    letters: str = ""
    """How each of `awaits` has ended, if a rerun knows it; empty if all are still to end."""


class FlowPlan(msgspec.Struct, array_like=True, frozen=True):
    """The jobs of a flow that are not enqueued yet, in this order."""

    flow: str
    seeds: list[FlowJobSeed]

    def after(self, many: int) -> FlowPlan:
        return FlowPlan(self.flow, self.seeds[many:])

    @property
    def token(self) -> str:
        """A name of the next step, the same for everybody who takes it."""
        return f"{self.flow}-{len(self.seeds)}"


encode = msgspec.msgpack.Encoder().encode
decode_dependency = msgspec.msgpack.Decoder(Dependency).decode
decode_follower = msgspec.msgpack.Decoder(Follower).decode
decode_flow_plan = msgspec.msgpack.Decoder(FlowPlan).decode


def counts_as_done(letter: str, mode: DependencyFailureMode) -> bool:
    """Whether a job with this mode may start after a dependency that ended so, as in lua/lib/flow.lua."""
    return letter == COMPLETED_LETTER or (mode == "continue" and letter != WAITING_LETTER)


def with_flow_flags(record: bytes, flags: int) -> bytes:
    """The record with these flags of a flow."""
    return record[:2] + bytes((record[2] | flags,)) + record[3:]
