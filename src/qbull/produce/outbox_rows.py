"""Rows: calls of tasks as rows of the outbox, written in the caller's transaction or in one of our own.

Who calls: everything that enqueues with `transaction=` or `durability="outbox"`. The relay makes jobs of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from qbull.core.envelope import is_wrapped
from qbull.options import EncodedArguments, Options
from qbull.produce.client import Client

if TYPE_CHECKING:
    from qbull.postgres.outbox import NewOutboxRow


class RowsApp(Protocol):
    prefix: str
    database: str | None

    def client(self) -> Client: ...


class RowsQueue(Protocol):
    """Where the jobs will go."""

    @property
    def app(self) -> RowsApp: ...
    @property
    def name(self) -> str: ...
    def new_id(self) -> str: ...


async def write(
    queue: RowsQueue, task: str, calls: Iterable[EncodedArguments], options: Options
) -> list[str]:
    """Answers with the ids of the jobs that they will be, when the statement is done."""
    from qbull.postgres import outbox

    rows = _rows(queue, task, calls, options)
    if options.transaction is not None:
        await outbox.write(options.transaction, rows)
    else:
        await queue.app.client().outbox(queue.app.database).add(rows)
    return [row.job_id for row in rows]


def write_sync(queue: RowsQueue, task: str, calls: Iterable[EncodedArguments], options: Options) -> list[str]:
    """The same in a transaction of synchronous code."""
    from qbull.postgres import outbox

    rows = _rows(queue, task, calls, options)
    outbox.write_sync(options.transaction, rows)
    return [row.job_id for row in rows]


def _rows(
    queue: RowsQueue, task: str, calls: Iterable[EncodedArguments], options: Options
) -> list[NewOutboxRow]:
    from qbull.postgres.outbox import NewOutboxRow

    app, said, durable = queue.app.prefix, options.wire(), options.durability == "outbox"
    return [
        NewOutboxRow(
            app, queue.name, call.id or queue.new_id(), task, call.key, _json(call.payload), said, durable
        )
        for call in calls
    ]


def payload_of(text: str) -> bytes:
    """The payload of a row again."""
    return base64.b64decode(text.strip('"')) if text.startswith('"') else text.encode()


def _json(payload: bytes) -> str:
    """Arguments are an object; what is sealed is a text, so that a relay without keys can ship it."""
    return f'"{base64.b64encode(payload).decode()}"' if is_wrapped(payload) else payload.decode()
