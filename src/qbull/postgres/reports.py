"""Reports: bring the changes of tracked and durable jobs from Redis to PostgreSQL.

The scripts write a report together with the change itself, so that none is missing and none is false. Reports
stay in Redis until they are committed here, so PostgreSQL may be unavailable for a while. A report that is
read twice changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbull.core.ids import partition_in
from qbull.core.record import REPORT_END_FLAG, split_ending
from qbull.postgres import tracking
from qbull.postgres.tracking import ENDED_LETTERS, TrackedJob, tracked_ending, tracked_job
from qbull.store.verbs.partition import Partition

if TYPE_CHECKING:
    from psycopg import AsyncConnection

REPORT_BATCH_SIZE = 40
"""Maximum number of entries of one partition in one transaction; each has up to 50 reports."""
MAX_UNHURRIED_ENTRIES = 5_000
"""Entries that may wait in a partition.

Up to this number, writing takes a tenth of the time, so that jobs do not wait for their own reports.
"""

MAX_REPORT_PAUSE_SECONDS = 1.0

_ENDED_CONDITION = "app = %(app)s AND queue = %(queue)s AND job_id = ANY (%(ids)s) AND durable"
# A job may end before the relay that has shipped it commits. The relay holds its row until then: only a
# statement that starts afterwards sees what became of it.
LOCK_ENDED_ROWS_SQL = f"SELECT FROM qbull_outbox WHERE {_ENDED_CONDITION} ORDER BY seq FOR UPDATE"
DELETE_ENDED_ROWS_SQL = (
    f"DELETE FROM qbull_outbox WHERE {_ENDED_CONDITION} AND (sent_at IS NOT NULL OR job_id = ANY (%(ours)s))"
)

ReportEntry = tuple[bytes, list[bytes]]


class ReportWriter:
    """Writes the reports of one app. The next read drops those that are committed."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._told: dict[str, list[bytes]] = {}

    async def tell(self, connection: AsyncConnection, partitions: Sequence[Partition]) -> bool:
        """One round over these partitions; returns whether there were reports."""
        any_told = False
        for partition in partitions:
            began = time.monotonic()
            length = await self.tell_some(connection, partition)
            any_told = any_told or length > 0
            if 0 < length <= MAX_UNHURRIED_ENTRIES:
                await asyncio.sleep(min((time.monotonic() - began) * 9, MAX_REPORT_PAUSE_SECONDS))
        return any_told

    async def tell_all(self, connection: AsyncConnection, partition: Partition) -> None:
        """Write all reports that exist now."""
        while await self.tell_some(connection, partition) > REPORT_BATCH_SIZE:
            pass

    async def tell_some(self, connection: AsyncConnection, partition: Partition) -> int:
        """Write the next entries of a partition; returns how many it had."""
        entries, length = await partition.reports(self._told.pop(partition.base, ()), REPORT_BATCH_SIZE)
        if entries:
            await self._write(connection, partition.settings.name, entries)
            self._told[partition.base] = [entry for entry, _ in entries]
        return length

    async def _write(self, connection: AsyncConnection, queue: str, entries: Sequence[ReportEntry]) -> None:
        lines: list[TrackedJob] = []
        ended: list[str] = []
        for entry, fields in entries:
            at_ms = int(entry.partition(b"-")[0])
            for name, value in zip(fields[::2], fields[1::2], strict=True):
                word = name.decode("utf-8", "replace")
                letter, rest = word[0], word[1:]
                if letter == "C":
                    lines += _done_rows(value, int(rest), at_ms)
                elif letter == "E":
                    ended += value.decode("utf-8", "replace").split("\n")
                else:
                    if letter in ENDED_LETTERS and (not value or value[2] & REPORT_END_FLAG):
                        ended.append(rest)
                    line = tracked_job(letter, rest, value, at_ms) if value else None
                    lines += [line] if line is not None else []
        async with connection.transaction():
            await tracking.write(connection, self._app, queue, lines)
            if ended:
                # If a row is not sent and a user chose its id, it may belong to another job that is yet to
                # come.
                ours = [id for id in ended if partition_in(id) is not None]
                asked = {"app": self._app, "queue": queue, "ids": ended, "ours": ours}
                await connection.execute(LOCK_ENDED_ROWS_SQL, asked, prepare=True)
                await connection.execute(DELETE_ENDED_ROWS_SQL, asked, prepare=True)


def _done_rows(value: bytes, many: int, at_ms: int) -> list[TrackedJob]:
    """The ids, a line each, and the same number of endings behind them: the last is read first."""
    *ids, rest = value.split(b"\n", many)
    lines = []
    for id in reversed(ids):
        rest, ending = split_ending(rest)
        lines.append(tracked_ending("c", id.decode("utf-8", "replace"), ending, at_ms))
    return lines
