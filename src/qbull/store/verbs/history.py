"""Histories: the records of durable jobs, as they are written and read.

The verb is lua/history_write.lua. The records are in the data of their job, so they are deleted with the job
and move with it to another partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from qbull.core.calls import CALL_FIELD, SIGNALS_FIELD, CallOutcomes, HistoryChange, read_outcomes
from qbull.core.durable import MAX_STEPS, STEP_FIELD, StepRecord, decode_record
from qbull.core.published import PUBLISHED_FIELD, PublishedValue, read_published
from qbull.errors import NotConfirmed, ServerAway
from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.outcomes import JobPosition
from qbull.store.verbs.partition import Partition

MAX_HISTORY_WRITES = 500
"""Jobs in one call. The limit bounds how long the script blocks the server."""

_NOTHING_ELSE = HistoryChange([])[1:]


class HistoryWrite(NamedTuple):
    """The change of a running job's history."""

    id: bytes
    position: JobPosition
    change: HistoryChange

    def arguments(self) -> list[bytes | str | int]:
        position, change = self.position, self.change
        head = (self.id, position.delivery, position.lane, position.number)
        if len(change.records) == 1 and change[1:] == _NOTHING_ELSE:
            return [*head, "", *change.records[0]]
        call, published = change.call, change.published
        return [
            *head,
            len(change.records),
            change.first,
            change.last,
            change.taken or "",
            change.joined,
            "" if call is None else call.name,
            "" if published is None else published.name,
            *(part for record in change.records for part in record),
            *(() if call is None else (call.told, call.plan)),
            *(() if published is None else (published.content,)),
        ]


@idempotent
async def write_history(
    partition: Partition, confirmed: ConfirmedServer | None, worker: str, writes: Sequence[HistoryWrite]
) -> list[bool]:
    """Write records of a worker's jobs. Returns False for each job that is no longer this worker's.

    Raises ServerAway if they are not confirmed in time as `confirmed` asks.
    """
    flat = [argument for write in writes for argument in write.arguments()]
    try:
        answer = await (confirmed or partition.server).script("history_write", partition.base, worker, *flat)
    except NotConfirmed as error:
        raise ServerAway(error.fact) from None
    return [bool(written) for written in answer]


@idempotent
async def read_job_data(partition: Partition, id: str) -> dict[bytes, bytes]:
    """The data of a job outside its record, its history included."""
    flat = await partition.server.call("HGETALL", f"{partition.base}job:{id}")
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def read_records(partition: Partition, id: str, is_strict: bool = False) -> list[StepRecord]:
    """The recorded steps of a job, in order.

    Records that cannot be read are left out. If `is_strict`, they raise ValueError.
    """
    found: dict[int, StepRecord] = {}
    for stored in await _read_steps(partition, id):
        with suppress(*() if is_strict else (ValueError,)):
            record = decode_record(stored)
            found[record.number] = record
    return [found[number] for number in sorted(found)]


@idempotent
async def _read_steps(partition: Partition, id: str) -> list[bytes]:
    """The records of a job as they are stored, in no order."""
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        cursor, flat = await partition.server.call(
            "HSCAN", f"{partition.base}job:{id}", cursor, "MATCH", STEP_FIELD + b"*", "COUNT", MAX_STEPS
        )
        found |= zip(flat[::2], flat[1::2], strict=True)
        if cursor == b"0":
            return list(found.values())


@idempotent
async def read_call_outcomes(partition: Partition, id: bytes, calls: Sequence[str]) -> CallOutcomes:
    """The outcomes of these calls of a job, as far as there are any."""
    names = [SIGNALS_FIELD, *(CALL_FIELD + call.encode() for call in calls)]
    found = await partition.server.call("HMGET", partition.base.encode() + b"job:" + id, *names)
    return read_outcomes({name: value for name, value in zip(names, found, strict=True) if value is not None})


@idempotent
async def read_published_values(partition: Partition, id: str, name: str | None) -> dict[str, bytes]:
    """The values that a job has published, or only the one with this name."""
    key = f"{partition.base}job:{id}"
    if name is not None:
        [content] = await partition.server.call("HMGET", key, PUBLISHED_FIELD + name.encode())
        return {} if content is None else {name: content}
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        match = PUBLISHED_FIELD + b"*"
        cursor, flat = await partition.server.call("HSCAN", key, cursor, "MATCH", match, "COUNT", MAX_STEPS)
        found.update(zip(flat[::2], flat[1::2], strict=True))
        if cursor == b"0":
            return read_published(found)


@idempotent
async def set_published_value(
    partition: Partition, confirmed: ConfirmedServer | None, id: str, value: PublishedValue
) -> str:
    """Set a published value from outside the run of its job: "set", "unknown" or "moving".

    Raises ServerAway if it is not confirmed in time as `confirmed` asks.
    """
    try:
        answer: bytes = await (confirmed or partition.server).script(
            "set_published", partition.base, id, *value
        )
    except NotConfirmed as error:
        raise ServerAway(error.fact) from None
    return answer.decode()
