"""Audit: record who did what. One entry for each call that changes something, and for each that was refused.

Calls that programs make many times a second are counted for a second and written as one entry. This costs no
extra call for each of them, and the entries of people stay in the log longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from qbull.errors import ServerError
from qbull.store.audit import short
from qbull.store.store import Store
from qbull.store.verbs import audit_log
from qbull.store.verbs.audit_log import AuditLogEntry

log = logging.getLogger("qbull.audit")

AUDIT_FLUSH_SECONDS = 1.0
"""How long calls of one kind are counted before they are written."""
MAX_AUDIT_KINDS = 1000


class AuditWriter:
    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._counted: dict[tuple[str, str, str, str, str, int, str], int] = {}
        self._writing: asyncio.Task[None] | None = None

    async def write(self, entry: AuditLogEntry) -> None:
        """Write an entry at once. If the server is unavailable, the process log has it."""
        entry = msgspec.structs.replace(
            entry, detail={name: short(value) for name, value in entry.detail.items()}
        )
        log.info("%s (%s) %s %s: %d", entry.who, entry.how, entry.action, entry.target, entry.status)
        try:
            is_unknown = entry.role == "open" and entry.status >= 400
            await audit_log.write(self._store(), [entry], "strangers" if is_unknown else "trail")
        except ServerError as error:
            log.error("audit entry not written: %s: %s", error, msgspec.json.encode(entry).decode())

    def count(self, entry: AuditLogEntry) -> None:
        """Count an entry with others of its kind; it is written a little later."""
        kind = (entry.who, entry.role, entry.how, entry.action, entry.target, entry.status, entry.address)
        self._counted[kind] = self._counted.get(kind, 0) + 1
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_counted())

    async def close(self) -> None:
        """Write the entries that are still being counted."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
            self._writing = None
        await self._flush()

    async def _write_counted(self) -> None:
        try:
            await asyncio.sleep(AUDIT_FLUSH_SECONDS)
        finally:
            self._writing = None
        await self._flush()

    async def _flush(self) -> None:
        counted, self._counted = self._counted, {}
        entries = [
            AuditLogEntry(who, role, how, action, target, status, address=address, count=count)
            for (who, role, how, action, target, status, address), count in counted.items()
        ]
        try:
            if entries:
                await audit_log.write(self._store(), entries[:MAX_AUDIT_KINDS])
        except ServerError as error:
            log.error("not written to the audit: %s: %d kinds of calls", error, len(entries))
