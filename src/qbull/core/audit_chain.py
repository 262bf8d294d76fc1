"""The chain of the audit log: each entry has a number and the hash of the entry before it.

A changed, removed or inserted entry breaks the chain. A user who can write to the server can also write a
new chain, so an operator keeps the last number and hash elsewhere, and compares them later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple


class ChainLink(NamedTuple):
    """One entry as it is stored. An entry of an earlier version has no number and no hashes."""

    id: str
    entry: bytes
    number: int
    before: str
    hash: str


class ChainHead(NamedTuple):
    """The last entry of a log, and the number of the oldest one that is kept."""

    number: int = 0
    hash: str = ""
    oldest: int = 0


class ChainReport(NamedTuple):
    """The result of a check: `entries` in the chain, `unchained` ones before it, and what is wrong."""

    entries: int
    unchained: int
    head: ChainHead
    faults: tuple[str, ...]


def entry_digest(entry: bytes) -> str:
    """The digest by which an entry is part of the chain. Its length does not depend on the entry."""
    return hashlib.sha256(entry).hexdigest()


def link_hash(before: str, number: int, entry: bytes) -> str:
    """The hash of an entry, which depends on all entries before it. The server makes it."""
    return hashlib.sha256(f"{before}\n{number}\n{entry_digest(entry)}".encode()).hexdigest()


def check_chain(links: Iterable[ChainLink], head: ChainHead, oldest: int) -> ChainReport:
    """Check all kept entries of a log, the oldest first, against its head.

    Args:
        links: the entries.
        head: the head as it was before they were read.
        oldest: the oldest entry after they were read: earlier ones may have been too many meanwhile.
    """
    faults: list[str] = []
    last: ChainLink | None = None
    entries = unchained = 0
    for link in links:
        if not link.hash:
            if last is None:
                unchained += 1
            else:
                faults.append(f"entry {link.id} is not part of the chain")
            continue
        entries += 1
        if link.hash != link_hash(link.before, link.number, link.entry):
            faults.append(f"entry {link.number} ({link.id}) was changed")
        if last is None:
            expected = min(max(head.oldest, link.number), max(head.oldest, oldest))
        else:
            expected = last.number + 1
        if link.number != expected:
            faults.append(f"{_missing(expected, link.number)} before entry {link.number} ({link.id})")
        elif last is not None and link.before != last.hash:
            faults.append(f"entry {link.number} ({link.id}) does not follow the entry before it")
        last = link
    ends = (last.number, last.hash) if last is not None else (0, "")
    if ends != (head.number, head.hash):
        faults.append(f"the log ends with entry {ends[0]}, but entry {head.number} was written last")
    return ChainReport(entries, unchained, head, tuple(faults))


def _missing(expected: int, found: int) -> str:
    if found < expected:
        return f"entries are out of order or repeated: {found} instead of {expected},"
    return (
        f"entry {expected} is missing"
        if found == expected + 1
        else f"entries {expected} to {found - 1} are missing"
    )
