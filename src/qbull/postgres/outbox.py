"""The outbox: a job as a row beside the caller's data, so that both are committed or neither is.

Who calls: `task.options(transaction=…).enqueue(…)`. A row has everything that the relay needs to enqueue the job later,
its id included, so shipping a row twice adds nothing. The relay is woken when the transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from qbull.errors import ArgumentsError
from qbull.postgres import transaction as callers

CHANNEL = "qbull_outbox"


class NewRow(msgspec.Struct, frozen=True):
    """A job on its way into the outbox. Payload and options are JSON in a text: the database takes them as they are."""

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


COLUMNS = "app, queue, job_id, task, key, payload, options, durable"

# One parameter, whatever the number of rows: every library can pass a text, and not every one an array.
# One notification for each app and transaction: PostgreSQL drops the repeated ones.
WRITE = f"""\
WITH written AS (
    INSERT INTO qbull_outbox ({COLUMNS})
    SELECT {COLUMNS.replace("payload, options", "CAST(payload AS json), CAST(options AS json)")}
    FROM json_to_recordset(CAST({callers.HERE} AS json)) AS rows(
        app text, queue text, job_id text, task text, key text, payload text, options text, durable boolean)
    RETURNING app
)
SELECT pg_notify('{CHANNEL}', app) FROM written GROUP BY app"""


async def write(transaction: Any, rows: Sequence[NewRow]) -> None:
    """Add rows in the caller's transaction."""
    await callers.run(transaction, WRITE, msgspec.json.encode(rows).decode())


def write_sync(transaction: Any, rows: Sequence[NewRow]) -> None:
    callers.run_sync(transaction, WRITE, msgspec.json.encode(rows).decode())
