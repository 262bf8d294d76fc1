"""The relay: ships committed rows of the outbox into the queues, and deletes them from the outbox.

In one transaction it claims a batch of rows by locking them, ships them, and deletes them. If it dies in
between, the rows are still there, and the next relay ships them again under the same ids, which adds nothing.
Any number of relays may run. A relay skips rows that another one holds, and with them later rows of the same
key, so that each key keeps its order. There is no cursor, so rows of transactions that commit late are found
too.

`qbull relay` runs it, and so does every `qbull worker` whose app has a database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from qbull.errors import DatabaseAway, DatabaseRefused, QbullError, ServerError
from qbull.postgres.connect import connected, cut_off_after, displayed_url
from qbull.postgres.outbox import OUTBOX_CHANNEL
from qbull.worker.outage import Outage

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("qbull.relay")

RELAY_BATCH_SIZE = 500
RELAY_POLL_SECONDS = 1.0
"""Seconds between two reads without a notification: one may be lost with its connection."""
CLAIMED_ROWS_RETRY_SECONDS = 0.02
"""Seconds until it looks again for rows that another relay held."""
QUEUE_BACKOFF_SECONDS = 1.0
"""Seconds for which it skips a queue that could not accept its rows."""
RELAY_STEP_TIMEOUT_SECONDS = 30.0
UNMIGRATED_POLL_SECONDS = 60.0
"""Seconds until it checks again whether the outbox exists."""
IDLE_TRANSACTION_TIMEOUT = "60s"
"""Seconds after which the database disconnects a frozen relay that holds rows."""


class OutboxRow(NamedTuple):
    """A row of the outbox. `age` is how many seconds ago it was written, on the database's clock."""

    seq: int
    queue: str
    job_id: str
    task: str
    key: str | None
    payload: str
    options: str
    age: float


class ShipResult(NamedTuple):
    """The outcome of a batch: enqueued rows, rows that never can be, queues that accept none now."""

    sent: list[int]
    refused: dict[int, str]
    resting: dict[str, QbullError]


class ShipRows(Protocol):
    async def __call__(self, rows: Sequence[OutboxRow], /) -> ShipResult: ...


_UNSENT_CONDITION = (
    "app = %(app)s AND sent_at IS NULL AND error_message IS NULL AND queue <> ALL (%(resting)s)"
)
# `busy`: keys of which another relay holds an earlier row, or held it when this statement started.
CLAIM_ROWS_SQL = f"""\
WITH claimed AS MATERIALIZED (
    SELECT * FROM qbull_outbox WHERE {_UNSENT_CONDITION} ORDER BY seq LIMIT %(most)s FOR UPDATE SKIP LOCKED
), busy AS (
    SELECT queue, key, min(seq) AS seq FROM qbull_outbox
    WHERE {_UNSENT_CONDITION} AND key IS NOT NULL
      AND seq < (SELECT max(seq) FROM claimed) AND seq NOT IN (SELECT seq FROM claimed)
    GROUP BY queue, key
)
SELECT c.seq, c.queue, c.job_id, c.task, c.key, c.payload::text, c.options::text,
       extract(epoch FROM clock_timestamp() - c.created_at)::float8,
       b.seq IS NOT NULL AND b.seq < c.seq
FROM claimed c LEFT JOIN busy b ON b.queue = c.queue AND b.key = c.key
ORDER BY c.seq"""
MARK_SENT_SQL = """\
WITH gone AS (DELETE FROM qbull_outbox WHERE seq = ANY (%(seqs)s) AND NOT durable)
UPDATE qbull_outbox SET sent_at = clock_timestamp() WHERE seq = ANY (%(seqs)s) AND durable"""
REFUSE_ROW_SQL = "UPDATE qbull_outbox SET error_message = %s WHERE seq = %s"


class Relay:
    """Ships the rows of one app.

    Args:
        database: the URL of the database.
        app: the prefix of the app.
        ship: puts rows into the queues of the app.
        outage: the outage of the database, shared by all its users in this process.
    """

    def __init__(self, database: str, app: str, ship: ShipRows, outage: Outage | None = None) -> None:
        self._database = database
        self._app = app
        self._ship = ship
        self._database_outage = outage or Outage("PostgreSQL")
        self._outage = Outage()
        self._resting: dict[str, float] = {}
        self._migrated = True

    async def run(self) -> None:
        """Ship until cancelled. It survives outages of both sides."""
        while True:
            try:
                async with connected(self._database, "qbull relay", autocommit=True) as connection:
                    self._database_outage.recovered(self)
                    if await self._is_migrated(connection):
                        await self._serve(connection)
            except (DatabaseAway, DatabaseRefused) as error:
                self._database_outage.failed(error, self)
            await asyncio.sleep(QUEUE_BACKOFF_SECONDS if self._migrated else UNMIGRATED_POLL_SECONDS)

    async def _is_migrated(self, connection: AsyncConnection) -> bool:
        """A worker may have a database without an outbox. That is no error, and is logged once."""
        cursor = await connection.execute("SELECT to_regclass('qbull_outbox') IS NOT NULL")
        row = await cursor.fetchone()
        there = row is not None and bool(row[0])
        if not there and self._migrated:
            log.info(
                'no relay: %s has no table qbull_outbox; "qbull migrate" creates it',
                displayed_url(self._database),
            )
        self._migrated = there
        return there

    async def _serve(self, connection: AsyncConnection) -> None:
        await connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_TRANSACTION_TIMEOUT}'")
        await connection.execute(f"LISTEN {OUTBOX_CHANNEL}")
        while True:
            with cut_off_after(RELAY_STEP_TIMEOUT_SECONDS, connection):
                claimed, sent = await self.step(connection)
            if not sent:
                await self._until_told(connection, CLAIMED_ROWS_RETRY_SECONDS if claimed else self._pause())

    async def step(self, connection: AsyncConnection) -> tuple[int, int]:
        """Claim a batch and ship it; returns the numbers of rows that were claimed and that are done."""
        async with connection.transaction():
            resting = self._still_resting()
            cursor = await connection.execute(
                CLAIM_ROWS_SQL, {"app": self._app, "most": RELAY_BATCH_SIZE, "resting": resting}, prepare=True
            )
            claimed = await cursor.fetchall()
            rows = [OutboxRow(*values) for *values, waits in claimed if not waits]
            if not rows:
                return len(claimed), 0
            shipped = await self._ship(rows)
            if shipped.sent:
                await connection.execute(MARK_SENT_SQL, {"seqs": shipped.sent}, prepare=True)
            for seq, reason in shipped.refused.items():
                log.error("outbox row %d cannot be shipped and is left in qbull_outbox: %s", seq, reason)
                await connection.execute(REFUSE_ROW_SQL, (reason, seq))
        self._note({row.queue for row in rows}, shipped.resting)
        return len(claimed), len(shipped.sent) + len(shipped.refused)

    async def _until_told(self, connection: AsyncConnection, seconds: float) -> None:
        async for _ in connection.notifies(timeout=seconds, stop_after=1):
            pass

    def _note(self, queues: set[str], resting: dict[str, QbullError]) -> None:
        """Log once that a queue cannot take its rows, and skip it for a moment in favour of others."""
        for queue in queues - resting.keys():
            self._outage.recovered(queue)
        for queue, why in resting.items():
            self._resting[queue] = time.monotonic() + QUEUE_BACKOFF_SECONDS
            self._outage.failed(why if isinstance(why, ServerError) else ServerError(str(why)), queue)

    def _still_resting(self) -> list[str]:
        now = time.monotonic()
        self._resting = {queue: until for queue, until in self._resting.items() if until > now}
        return list(self._resting)

    def _pause(self) -> float:
        soonest = min(self._resting.values(), default=time.monotonic() + RELAY_POLL_SECONDS)
        return min(max(soonest - time.monotonic(), 0.01), RELAY_POLL_SECONDS)
