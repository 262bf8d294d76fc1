"""Outbox rows: calls of tasks as rows in PostgreSQL, written in the caller's transaction or in one of our
own.

The enqueue path ends here for calls with `transaction=` or `durability="outbox"`. The relay turns rows into
jobs.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from qbull.core.options import Options
from qbull.core.record import ExtendedBody
from qbull.core.wrapped_payload import is_wrapped

if TYPE_CHECKING:
    from qbull.postgres.outbox import NewOutboxRow
    from qbull.produce.chain import Request


async def write(request: Request, options: Options) -> list[str]:
    """Write a request's calls as rows. Returns the ids that their jobs will have."""
    from qbull.postgres import outbox

    app, rows = request.queue.app, _rows(request, options)
    if options.transaction is not None:
        await outbox.write(options.transaction, rows)
    else:
        await app._client().outbox(app.database).add(rows)
    return [row.job_id for row in rows]


def write_sync(request: Request, options: Options) -> list[str]:
    """`write` with a transaction of synchronous code."""
    from qbull.postgres import outbox

    rows = _rows(request, options)
    outbox.write_sync(options.transaction, rows)
    return [row.job_id for row in rows]


def _rows(request: Request, options: Options) -> list[NewOutboxRow]:
    from qbull.postgres.outbox import NewOutboxRow

    queue, stored, durable = request.queue, options.wire(), options.durability == "outbox"
    producer, rows = queue._producer, list[NewOutboxRow]()
    for call in request.calls:
        id = call.id or producer.new_id()
        body = ExtendedBody(request.task, call.payload, call.key, headers=options.headers)
        payload = _json(producer.protect(id, body))
        row = NewOutboxRow(queue.app.prefix, queue.name, id, request.task, call.key, payload, stored, durable)
        rows.append(row)
    return rows


def payload_of(text: str) -> bytes:
    """The payload that a row holds."""
    return base64.b64decode(text.strip('"')) if text.startswith('"') else text.encode()


def _json(payload: bytes) -> str:
    """Plain arguments are a JSON object.

    Encrypted ones are a JSON string, which a relay without keys can ship.
    """
    return f'"{base64.b64encode(payload).decode()}"' if is_wrapped(payload) else payload.decode()
