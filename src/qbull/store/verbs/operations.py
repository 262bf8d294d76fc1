"""Bulk operations of the API on many jobs. Their state is kept for a week.

The process that runs one writes its progress every second, and reads whether it must stop. If the progress
stops, that process is gone.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from qbull.errors import NotFound
from qbull.store.read.inspect import server_time
from qbull.store.retry import idempotent
from qbull.store.store import Store

OPERATION_TTL_SECONDS = 7 * 86_400
"""Seconds."""
MAX_OPERATIONS = 200
OPERATION_LOST_AFTER_SECONDS = 15.0
"""An operation without progress for this long counts as lost."""
OPERATION_LOST_ERROR = "the process that ran it is gone; ask for it again, it goes on with what is left"


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bulk operation. `total` is the number of jobs at its start.

    `refused` were left as they are, because the patch of the operation does not fit them.

    Times are milliseconds on the server's clock.
    """

    id: str
    action: str
    queue: str
    filter: dict[str, Any]
    by: str
    started_ms: int
    state: Literal["running", "done", "failed", "stopped"] = "running"
    done: int = 0
    looked_at: int = 0
    total: int | None = None
    updated_ms: int = 0
    error: str | None = None
    refused: int = 0
    refusal: str | None = None


@idempotent
async def write(store: Store, operation: Operation) -> bool:
    """Write the progress; returns whether the operation must stop."""
    stop: int = await store.server.script(
        "operation",
        store.names.app,
        operation.id,
        operation.started_ms,
        OPERATION_TTL_SECONDS * 1000,
        MAX_OPERATIONS,
        msgspec.json.encode(operation),
    )
    return bool(stop)


@idempotent
async def find(store: Store, id: str) -> Operation:
    packed = await store.server.call("GET", store.names.operation(id))
    if packed is None:
        raise NotFound(f'no operation "{id[:50]}"; they are kept for a week')
    return _with_liveness(msgspec.json.decode(packed, type=Operation), await server_time(store))


@idempotent
async def newest(store: Store, many: int) -> list[Operation]:
    ids = await store.server.call("ZRANGE", store.names.operations, 0, many - 1, "REV")
    if not ids:
        return []
    names = [store.names.operation(id.decode()) for id in ids]
    now = await server_time(store)
    found = await store.server.call("MGET", *names)
    return [
        _with_liveness(msgspec.json.decode(packed, type=Operation), now)
        for packed in found
        if packed is not None
    ]


@idempotent
async def ask_to_stop(store: Store, id: str) -> None:
    await store.server.script("set_flag", f"{store.names.operation(id)}:stop", 60)


def _with_liveness(operation: Operation, now: float) -> Operation:
    """The operation, as stopped if its process is gone."""
    if (
        operation.state == "running"
        and now * 1000 - operation.updated_ms > OPERATION_LOST_AFTER_SECONDS * 1000
    ):
        return msgspec.structs.replace(operation, state="stopped", error=OPERATION_LOST_ERROR)
    return operation
