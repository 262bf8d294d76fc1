"""The audit log of the API: who did what, when, and with which result. Kept by count and by age.

It has one entry for each call that changes something, and for each refused call. Frequent calls of programs
(enqueue) are counted in one entry. Refused calls of unknown callers are in a stream of their own, so that
they cannot displace the other entries.
"""

from __future__ import annotations

from typing import Any

import msgspec

from qbull.store.retry import idempotent
from qbull.store.store import Store

MAX_AUDIT_ENTRIES = 10_000
MAX_UNKNOWN_CALLER_ENTRIES = 1_000
AUDIT_RETENTION_SECONDS = 90 * 86_400
"""Seconds."""


class AuditLogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call. `status` is the status of its response.

    `count` is the number of calls, if several share one entry.
    """

    who: str
    role: str
    how: str
    action: str
    target: str = ""
    status: int = 200
    detail: dict[str, Any] = {}
    address: str = ""
    count: int = 1


class AuditLogRecord(msgspec.Struct, frozen=True):
    """A stored entry. The newest entry has the highest `id`."""

    id: str
    at_ms: int
    entry: AuditLogEntry


async def write(store: Store, entries: list[AuditLogEntry], *, strangers: bool = False) -> None:
    name, limit = ("strangers", MAX_UNKNOWN_CALLER_ENTRIES) if strangers else ("trail", MAX_AUDIT_ENTRIES)
    packed = (msgspec.json.encode(entry) for entry in entries)
    await store.server.script(
        "audit_log", store.names.app, name, limit, AUDIT_RETENTION_SECONDS * 1000, *packed
    )


@idempotent
async def read(store: Store, limit: int, before: str | None = None) -> list[AuditLogRecord]:
    """Entries, the newest first; `before` is the id of the last entry of the previous page."""
    if before is not None and not before.strip("0-"):
        return []  # nothing can be before the first id
    upto = "+" if before is None else f"({before}"
    rows = []
    for stream in (store.names.trail, store.names.strangers):
        rows += await store.server.call("XREVRANGE", stream, upto, "-", "COUNT", limit)
    rows.sort(key=lambda row: _entry_id(row[0]), reverse=True)
    rows = rows[:limit]
    return [
        AuditLogRecord(id.decode(), int(id.partition(b"-")[0]), _unpack_entry(fields[1]))
        for id, fields in rows
    ]


def _entry_id(id: bytes) -> tuple[int, int]:
    ms, _, n = id.partition(b"-")
    return int(ms), int(n)


def _unpack_entry(packed: bytes) -> AuditLogEntry:
    try:
        return msgspec.json.decode(packed, type=AuditLogEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # another version wrote it
        return AuditLogEntry("?", "?", "?", "?")
