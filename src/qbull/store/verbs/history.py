"""Histories: the records of durable jobs, as they are written and read.

The verb is lua/history_write.lua. The records are in the data of their job, so they are deleted with the job
and move with it to another partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from qbull.core.durable import MAX_STEPS, STEP_FIELD, StepRecord, decode_record
from qbull.errors import NotConfirmed, ServerAway
from qbull.store.confirm import ConfirmedServer
from qbull.store.retry import idempotent
from qbull.store.verbs.outcomes import JobPosition
from qbull.store.verbs.partition import Partition

MAX_HISTORY_WRITES = 500
"""Jobs in one call. The limit bounds how long the script blocks the server."""


class HistoryWrite(NamedTuple):
    """New records of a running job. The records from `first` to `last` are deleted, none if it is greater.

    `taken` is the number of the signal whose value the record has, or 0.
    """

    id: bytes
    position: JobPosition
    records: Sequence[tuple[int, bytes]]
    first: int = 1
    last: int = 0
    taken: int = 0

    def arguments(self) -> list[bytes | str | int]:
        position = self.position
        head = (self.id, position.delivery, position.lane, position.number, self.first, self.last)
        return [
            *head,
            self.taken or "",
            len(self.records),
            *(part for record in self.records for part in record),
        ]


@idempotent
async def write_history(
    partition: Partition, confirmed: ConfirmedServer | None, writes: Sequence[HistoryWrite]
) -> list[bool]:
    """Write records. Returns False for each job that belongs to another worker by now.

    Raises ServerAway if they are not confirmed in time as `confirmed` asks.
    """
    flat = [argument for write in writes for argument in write.arguments()]
    try:
        answer = await (confirmed or partition.server).script("history_write", partition.base, *flat)
    except NotConfirmed as error:
        raise ServerAway(error.fact) from None
    return [bool(written) for written in answer]


@idempotent
async def read_job_data(partition: Partition, id: str) -> dict[bytes, bytes]:
    """The data of a job outside its record, its history included."""
    flat = await partition.server.call("HGETALL", f"{partition.base}job:{id}")
    return dict(zip(flat[::2], flat[1::2], strict=True))


@idempotent
async def read_records(partition: Partition, id: str) -> list[StepRecord]:
    """The recorded steps of a job, in order. Records that cannot be read are left out."""
    found: dict[int, StepRecord] = {}
    cursor = b"0"
    while True:
        cursor, flat = await partition.server.call(
            "HSCAN", f"{partition.base}job:{id}", cursor, "MATCH", STEP_FIELD + b"*", "COUNT", MAX_STEPS
        )
        for stored in flat[1::2]:
            with suppress(ValueError):
                record = decode_record(stored)
                found[record.number] = record
        if cursor == b"0":
            return [found[number] for number in sorted(found)]
