"""The audit log: who did what, from where, when, why, and with which result. Kept by count and by age.

It has one entry for each call that changes something, and for each refused call. Frequent calls of programs
(enqueue) are counted in one entry. Refused calls of unknown callers, and calls that programs make from
Python, are in streams of their own, so that they cannot displace the entries of people. The entries of each
stream form a chain (core/audit_chain.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from qbull.core.audit_chain import ChainHead, ChainLink, ChainReport, check_chain, entry_digest
from qbull.core.digits import whole_number
from qbull.core.ids import new_token
from qbull.store.retry import idempotent
from qbull.store.store import Store

AuditStream = Literal["trail", "programs", "strangers"]
MAX_AUDIT_ENTRIES: dict[AuditStream, int] = {"trail": 10_000, "programs": 10_000, "strangers": 1_000}
"""Entries that each stream keeps: of people, of programs, of unknown callers."""
AUDIT_RETENTION_SECONDS = 90 * 86_400
AUDIT_PAGE_SIZE = 500
"""Entries that one call reads."""
AUDIT_BATCH_SIZE = 50
"""Entries that one call writes: the server hashes each of them."""


class AuditLogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call. `status` is the status of its response; `address` is where it came from.

    `detail` has `before` and `after` if something was replaced. `count` is the number of calls, if several
    share one entry.
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
    reason: str = ""


class AuditLogRecord(msgspec.Struct, frozen=True):
    """A stored entry. The newest one has the highest `id`. `number` and `hash` are its link in the chain."""

    id: str
    at_ms: int
    entry: AuditLogEntry
    stream: AuditStream = "trail"
    number: int = 0
    hash: str = ""


class AuditSearch(msgspec.Struct, frozen=True):
    """Which entries are wanted: `text` is anywhere in an entry, in upper or lower case.

    `shown` makes an entry as the caller may see it. The search is in those.
    """

    who: str | None = None
    action: str | None = None
    target: str | None = None
    text: str | None = None
    since_ms: int = 0
    shown: Callable[[AuditLogRecord], AuditLogRecord] | None = None

    def fits(self, record: AuditLogRecord) -> bool:
        entry = record.entry
        if self.who not in (None, entry.who) or self.action not in (None, entry.action):
            return False
        if self.target is not None and self.target not in entry.target:
            return False
        return self.text is None or self.text.lower() in msgspec.json.encode(entry).decode().lower()


async def write(store: Store, entries: Sequence[AuditLogEntry], stream: AuditStream = "trail") -> None:
    """Append entries to a stream."""
    packed = [msgspec.json.encode(entry) for entry in entries]
    for start in range(0, len(packed), AUDIT_BATCH_SIZE):
        await _append(store, stream, new_token(), packed[start : start + AUDIT_BATCH_SIZE])


@idempotent
async def _append(store: Store, stream: AuditStream, token: str, entries: Sequence[bytes]) -> None:
    """Append entries. The caller makes `token` before the first send."""
    fields = [part for entry in entries for part in (entry, entry_digest(entry))]
    bounds = (MAX_AUDIT_ENTRIES[stream], AUDIT_RETENTION_SECONDS * 1000)
    await store.server.script("audit_log", store.names.app, stream, token, *bounds, *fields)


@idempotent
async def read(store: Store, limit: int, before: str | None = None) -> list[AuditLogRecord]:
    """Entries, the newest first; `before` is the id of the last entry of the previous page."""
    if before is not None and not before.strip("0-"):
        return []  # nothing can be before the first id
    upto = "+" if before is None else f"({before}"
    found: list[AuditLogRecord] = []
    for stream in MAX_AUDIT_ENTRIES:
        rows = await store.server.call("XREVRANGE", store.names.app + stream, upto, "-", "COUNT", limit)
        found += [_record(stream, id, fields) for id, fields in rows]
    found.sort(key=lambda record: _entry_id(record.id), reverse=True)
    return found[:limit]


async def read_all(store: Store, before: str | None = None) -> AsyncGenerator[AuditLogRecord, None]:
    """All entries, the newest first, a page at a time."""
    while page := await read(store, AUDIT_PAGE_SIZE, before):
        for record in page:
            yield record
        before = page[-1].id


async def found(
    store: Store, wanted: AuditSearch, before: str | None = None
) -> AsyncGenerator[AuditLogRecord, None]:
    """The entries that fit, the newest first. All kept entries are looked at, which are not many."""
    async for record in read_all(store, before):
        if record.at_ms < wanted.since_ms:
            return
        shown = wanted.shown(record) if wanted.shown is not None else record
        if wanted.fits(shown):
            yield shown


async def search(
    store: Store, limit: int, wanted: AuditSearch, before: str | None = None
) -> list[AuditLogRecord]:
    """The newest entries that fit."""
    page: list[AuditLogRecord] = []
    async with aclosing(found(store, wanted, before)) as records:
        async for record in records:
            page.append(record)
            if len(page) == limit:
                break
    return page


async def verify(store: Store, stream: AuditStream) -> ChainReport:
    """Check the chain of a stream. Entries that are written meanwhile are left out."""
    head = await _head(store, stream)
    links = [link for link in await _links(store, stream) if link.number <= head.number]
    return check_chain(links, head, (await _head(store, stream)).oldest)


@idempotent
async def _head(store: Store, stream: AuditStream) -> ChainHead:
    chain = f"{store.names.app}{stream}:chain"
    number, digest, oldest = await store.server.call("HMGET", chain, "number", "hash", "oldest")
    return ChainHead(
        whole_number(number or b"") or 0,
        (digest or b"").decode("utf-8", "replace"),
        whole_number(oldest or b"") or 0,
    )


@idempotent
async def _links(store: Store, stream: AuditStream) -> list[ChainLink]:
    links: list[ChainLink] = []
    start = "-"
    while True:
        rows = await store.server.call(
            "XRANGE", store.names.app + stream, start, "+", "COUNT", AUDIT_PAGE_SIZE
        )
        links += [_link(id, fields) for id, fields in rows]
        if len(rows) < AUDIT_PAGE_SIZE:
            return links
        start = f"({links[-1].id}"


def _record(stream: AuditStream, id: bytes, fields: Sequence[bytes]) -> AuditLogRecord:
    link = _link(id, fields)
    at_ms = int(id.partition(b"-")[0])
    return AuditLogRecord(link.id, at_ms, _unpack_entry(link.entry), stream, link.number, link.hash)


def _link(id: bytes, fields: Sequence[bytes]) -> ChainLink:
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    number, before, digest = found.get(b"n", b""), found.get(b"p", b""), found.get(b"h", b"")
    return ChainLink(
        id.decode(),
        found.get(b"e", b""),
        whole_number(number) or 0,
        before.decode("utf-8", "replace"),
        digest.decode("utf-8", "replace"),
    )


def _entry_id(id: str) -> tuple[int, int]:
    ms, _, n = id.partition("-")
    return int(ms), int(n)


def _unpack_entry(packed: bytes) -> AuditLogEntry:
    try:
        return msgspec.json.decode(packed, type=AuditLogEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # another version wrote it
        return AuditLogEntry("?", "?", "?", "?")
