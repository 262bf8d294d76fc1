"""Reconcile: ship durable rows of the outbox again if Redis has lost their jobs.

A durable row stays until its job has ended. If a row was shipped, but the queue does not know its job and has
not reported its end, the job was lost. The row is then marked as not shipped, and the relay ships it again,
in order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from qbull.config import QueueSettings
from qbull.core.layout import Layout
from qbull.core.route import digest
from qbull.errors import NotFound
from qbull.postgres.outbox import OUTBOX_CHANNEL
from qbull.postgres.reports import ReportWriter
from qbull.store.store import Store

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("qbull.maintenance")

RECONCILE_BATCH_SIZE = 1000

SELECT_SENT_ROWS_SQL = """\
SELECT seq, queue, job_id, key FROM qbull_outbox
WHERE app = %(app)s AND seq > %(after)s AND sent_at IS NOT NULL ORDER BY seq LIMIT %(most)s"""
DELETE_ROWS_SQL = "DELETE FROM qbull_outbox WHERE seq = ANY (%s)"
RESET_SENT_SQL = "UPDATE qbull_outbox SET sent_at = NULL WHERE seq = ANY (%s) AND sent_at IS NOT NULL"
NOTIFY_SQL = "SELECT pg_notify(%s, %s)"


class SentRow(NamedTuple):
    seq: int
    queue: str
    job_id: str
    key: str | None


class Reconciler:
    """Checks the rows in an endless loop, a thousand at a time."""

    def __init__(self, app: str, reports: ReportWriter) -> None:
        self._app = app
        self._reports = reports
        self._after = 0

    async def step(self, connection: AsyncConnection, store: Store) -> bool:
        """Check the next rows that were shipped; returns whether there are more."""
        asked = {"app": self._app, "after": self._after, "most": RECONCILE_BATCH_SIZE}
        cursor = await connection.execute(SELECT_SENT_ROWS_SQL, asked, prepare=True)
        rows = [SentRow(*row) for row in await cursor.fetchall()]
        for queue in {row.queue for row in rows}:
            await self._look_at(connection, store, queue, [row for row in rows if row.queue == queue])
        self._after = rows[-1].seq if len(rows) == RECONCILE_BATCH_SIZE else 0
        return self._after > 0

    async def _look_at(
        self, connection: AsyncConnection, store: Store, queue: str, rows: Sequence[SentRow]
    ) -> None:
        try:
            settings = await store.settings(queue)
        except NotFound:  # All of it is lost; the relay registers the queue again.
            await self._put_back(connection, rows)
            return
        layout = await store.layout(settings)
        states = await _states(store, settings, layout, rows)
        finished = [row.seq for row in rows if states.get(row.job_id, "-") in "cfx"]
        missing = [row for row in rows if row.job_id not in states]
        if finished:
            await connection.execute(DELETE_ROWS_SQL, (finished,))
        if missing:
            # Some may have ended without being kept. Their ends were reported before the check, so their
            # rows are deleted now.
            for number in sorted(
                {number for row in missing for number in _partitions_of(settings, layout, row)}
            ):
                await self._reports.tell_all(connection, store.partition(settings, number))
            await self._put_back(connection, missing)

    async def _put_back(self, connection: AsyncConnection, rows: Sequence[SentRow]) -> None:
        async with connection.transaction():
            cursor = await connection.execute(RESET_SENT_SQL, ([row.seq for row in rows],))
            if cursor.rowcount:
                await connection.execute(NOTIFY_SQL, (OUTBOX_CHANNEL, self._app))
        if cursor.rowcount:
            log.warning('queue "%s": %d jobs were lost and are shipped again', rows[0].queue, cursor.rowcount)


async def _states(
    store: Store, settings: QueueSettings, layout: Layout, rows: Sequence[SentRow]
) -> dict[str, str]:
    """The partitions of these jobs. Jobs that the queue does not know are left out."""
    found: dict[str, str] = {}
    for generation in range(len(layout.generations)):  # The oldest first: jobs move towards the last.
        groups: dict[int, list[str]] = {}
        for row in rows:
            if row.job_id not in found:
                groups.setdefault(_partitions_of(settings, layout, row)[generation], []).append(row.job_id)
        for number, ids in groups.items():
            letters = await store.partition(settings, number).states(ids)
            found |= {id: letter for id, letter in zip(ids, letters, strict=True) if letter != "-"}
    return found


def _partitions_of(settings: QueueSettings, layout: Layout, row: SentRow) -> list[int]:
    """The partition of a job in each generation, by the rule that it was enqueued by."""
    together = row.key is not None and (settings.order is not None or settings.lane is not None)
    if together and row.key is not None:
        return [generation.home(digest(row.key)) for generation in layout.generations]
    return [generation.home_of_id(row.job_id) for generation in layout.generations]
