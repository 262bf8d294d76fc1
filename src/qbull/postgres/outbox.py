"""The outbox: a job as a row beside the caller's data, so that both are committed or neither is.

`task.options(transaction=…).enqueue(…)` and `durability="outbox"` write it. A row has everything that the
relay needs to enqueue the job later, including its id, so shipping a row twice adds nothing. The commit wakes
the relay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from qbull.core.backoff import ExponentialBackoff, jittered
from qbull.errors import ArgumentsError, DatabaseAway
from qbull.postgres import transaction as callers
from qbull.store.batch import Batcher

if TYPE_CHECKING:
    from psycopg import AsyncConnection

OUTBOX_CHANNEL = "qbull_outbox"
OUTBOX_BATCH_SIZE = 500
OUTBOX_RETRY_SECONDS = 10.0
"""Seconds during which a write is retried while the database is unavailable."""
OUTBOX_BACKOFF = ExponentialBackoff(first_seconds=0.05, max_seconds=1.0)


class NewOutboxRow(msgspec.Struct, frozen=True):
    """A job on its way into the outbox.

    Payload and options are JSON in a text: the database takes them as they are.
    """

    app: str
    queue: str
    job_id: str
    task: str
    key: str | None
    payload: str
    options: str
    durable: bool = False

    def __post_init__(self) -> None:
        for name in ("job_id", "key"):
            if "\0" in (getattr(self, name) or ""):
                raise ArgumentsError(
                    f"{name}={getattr(self, name)!r}: PostgreSQL cannot store the character \\0"
                )


OUTBOX_COLUMNS = "app, queue, job_id, task, key, payload, options, durable"

# One parameter, whatever the number of rows: every library can pass a text, and not every one an array.
# One notification for each app and transaction: PostgreSQL drops the repeated ones.
INSERT_OUTBOX_SQL = f"""\
WITH written AS (
    INSERT INTO qbull_outbox ({OUTBOX_COLUMNS})
    SELECT {OUTBOX_COLUMNS.replace("payload, options", "CAST(payload AS json), CAST(options AS json)")}
    FROM json_to_recordset({callers.JSON_PARAMETER}) AS rows(
        app text, queue text, job_id text, task text, key text, payload text, options text, durable boolean)
    RETURNING app
)
SELECT pg_notify('{OUTBOX_CHANNEL}', app) FROM written GROUP BY app"""


async def write(transaction: Any, rows: Sequence[NewOutboxRow]) -> None:
    """Add rows in the caller's transaction."""
    await callers.run(transaction, INSERT_OUTBOX_SQL, msgspec.json.encode(rows).decode())


def write_sync(transaction: Any, rows: Sequence[NewOutboxRow]) -> None:
    callers.run_sync(transaction, INSERT_OUTBOX_SQL, msgspec.json.encode(rows).decode())


class Outbox:
    """The app's own writer of the outbox, for callers without a transaction. Belongs to one event loop.

    Rows of concurrent calls are committed together. If the answer to a commit was lost, it is sent again: two
    rows with one id become one job.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._batcher: Batcher[NewOutboxRow, None] = Batcher(self._send, OUTBOX_BATCH_SIZE, in_order=True)
        self._connection: AsyncConnection | None = None
        self._turn = asyncio.Lock()

    async def add(self, rows: Sequence[NewOutboxRow]) -> None:
        """Write rows; returns when they are committed."""
        if len(rows) == 1:
            await self._batcher.add(rows[0])
            return
        for start in range(0, len(rows), OUTBOX_BATCH_SIZE):
            await self._send(rows[start : start + OUTBOX_BATCH_SIZE])

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _send(self, rows: Sequence[NewOutboxRow]) -> list[None]:
        clock = asyncio.get_running_loop().time
        started = clock()
        delays = OUTBOX_BACKOFF.delays()
        while True:
            try:
                async with self._one_at_a_time():
                    await self._write(rows)
                return [None] * len(rows)
            except DatabaseAway:
                delay = next(delays)
                if clock() + delay - started > OUTBOX_RETRY_SECONDS:
                    raise
            await asyncio.sleep(jittered(delay))

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        """A connection has one transaction, so two writers would commit or lose each other's rows."""
        try:
            async with asyncio.timeout(OUTBOX_RETRY_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise DatabaseAway(
                f"the outbox could not be written to within {OUTBOX_RETRY_SECONDS:g} s"
            ) from None
        try:
            yield
        finally:
            self._turn.release()

    async def _write(self, rows: Sequence[NewOutboxRow]) -> None:
        from qbull.postgres.connect import cut_off_after, open_connection, translated_errors

        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = await open_connection(
                self._database, "qbull outbox", autocommit=True
            )
        with translated_errors(self._database), cut_off_after(OUTBOX_RETRY_SECONDS, connection):
            async with connection.transaction():
                await write(connection, rows)
