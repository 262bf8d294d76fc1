"""A flow: jobs that wait for other jobs, as they are sent and as Redis stores them.

The record of a flow's job lists the jobs that wait for its end (`Dependent`). Beside the record of a waiting job
is one `Dependency` for each job that it waits for. A flow that is being enqueued is a `FlowPlan`: the jobs that
are not enqueued yet. A job is enqueued before those that it waits for, so it is always there when one of them
ends.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

DependencyFailureMode: TypeAlias = Literal["stop", "continue", "rescue"]
"""What a job does when one that it waits for does not complete: end too, run all the same; "rescue" runs only then."""

HAS_DEPENDENTS_FLAG, HAS_DEPENDENCIES_FLAG = 8, 16
"""In the third byte of a record: others wait for its end; it waits for others."""
NOT_NEEDED_LETTER = "u"
NOT_COMPLETED_LETTERS = "fx-tu"
"""The letters for how a job ended."""
NEVER_DUE_MS = 253_402_300_799_000
"""The due time of a job that waits for others, as in lua/lib/flow.lua: the end of the year 9999."""
MAX_FLOW_STEPS = 10_000
FLOW_LIMIT_BYTES = 8 << 20


class Dependent(msgspec.Struct, array_like=True, frozen=True):
    """Somebody who waits for a job: in which queue, by which id and key's digest it is found, and as which of those that it waits for.

    `unless`: the letters of ends (lua/lib/flow.lua) that it is not told, because somebody else stands in for the job then.
    """

    queue: str
    id: str
    together: bytes | None
    position: int
    unless: str = ""


class Dependency(msgspec.Struct, array_like=True, frozen=True):
    """What a job that waits knows of one of those that it waits for. `result` and what follows: once that has ended.

    `together` helps to find it, as in `Link`.
    """

    queue: str
    id: str
    task: str
    result: bytes | None = None
    error: str | None = None
    stacktrace: str | None = None
    stored: str = ""
    together: bytes | None = None


class FlowJobSeed(msgspec.Struct, array_like=True, frozen=True):
    """A job that is to be planted. `given` says that its id was chosen by whoever enqueued it."""

    queue: str
    id: str
    together: bytes | None
    given: bool
    when: int | str
    record: bytes
    mode: DependencyFailureMode = "stop"
    awaits: list[Dependency] = []


class FlowPlan(msgspec.Struct, array_like=True, frozen=True):
    """What is still to be planted of a flow, in this order."""

    flow: str
    seeds: list[FlowJobSeed]

    def after(self, many: int) -> FlowPlan:
        return FlowPlan(self.flow, self.seeds[many:])

    @property
    def token(self) -> str:
        """The same for everybody who plants the same next ones."""
        return f"{self.flow}-{len(self.seeds)}"


encode = msgspec.msgpack.Encoder().encode
decode_dependency = msgspec.msgpack.Decoder(Dependency).decode
decode_flow_plan = msgspec.msgpack.Decoder(FlowPlan).decode


def with_flow_flags(record: bytes, flags: int) -> bytes:
    """The record with these marks of a flow."""
    return record[:2] + bytes((record[2] | flags,)) + record[3:]
