"""Streams of jobs: add values, and read them. The verb is lua/emit.lua.

The stream of a job is a stream of the server in the partition of the job. It is deleted with the job and
moves with it to another partition, where its values keep their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbull.core.streams import EmittedKey, StreamEntry, StreamLimits
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

MAX_EMITTED_PER_CALL = 200
"""Values in one call. The limit bounds how long the script blocks the server."""
STREAM_PAGE_SIZE = 500
"""Values that a reader gets at a time."""
_CALL_SLACK_SECONDS = 10.0


class Emission(NamedTuple):
    """A value of a running job."""

    id: bytes
    position: bytes
    lane: bytes
    key: EmittedKey
    content: bytes

    def arguments(self) -> tuple[bytes | str | int, ...]:
        return (self.id, self.position, self.lane, *self.key, self.content)


async def emit(partition: Partition, limits: StreamLimits, values: Sequence[Emission]) -> list[bool]:
    """Add values. May be sent twice. Returns False for each job that belongs to another worker by now."""
    bounds = (limits.max_values, limits.max_bytes, int(limits.keep_seconds * 1000))
    flat = [argument for value in values for argument in value.arguments()]
    answer = await partition.server.script("emit", partition.base, *bounds, *flat)
    return [bool(taken) for taken in answer]


@idempotent
async def read_stream(
    partition: Partition, id: str, after: int, block_seconds: float = 0.0
) -> list[StreamEntry]:
    """The values after a number. If there are none, wait for some of them; the list may be empty then."""
    wait = ("BLOCK", max(int(block_seconds * 1000), 1)) if block_seconds else ()
    found = await partition.server.call(
        "XREAD", "COUNT", STREAM_PAGE_SIZE, *wait, "STREAMS", f"{partition.base}stream:{id}", f"{after}-0",
        timeout=block_seconds + _CALL_SLACK_SECONDS,
    )  # fmt: skip
    entries = found[0][1] if found else []
    return [StreamEntry(int(at.partition(b"-")[0]), fields[1], fields[3]) for at, fields in entries]
