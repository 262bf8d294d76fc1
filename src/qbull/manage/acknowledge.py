"""Acknowledge: say of a kind of error that somebody knows of it, with a note."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbull.core.acknowledgement import Acknowledgement, Returned, busiest_window
from qbull.core.failures import is_fingerprint
from qbull.errors import ArgumentsError, NotFound
from qbull.store.audit import audited, of_queue
from qbull.store.read.error_kinds import MAX_ERROR_MINUTES, ErrorKind, read_error_kinds
from qbull.store.verbs import acknowledgements

if TYPE_CHECKING:
    from qbull.queue import Queue

MAX_ACKNOWLEDGEMENT_CHARS = 500
RECENT_KIND_MINUTES = 60
"""The minutes that say how often an acknowledged kind usually fails."""


@audited("acknowledge error", of_queue)
async def acknowledge(queue: Queue, fingerprint: str, note: str, by: str) -> None:
    """Acknowledge a kind of error until it fails again after a quiet time, or far more often."""
    if not isinstance(note, str) or not note.isprintable() or not 1 <= len(note) <= MAX_ACKNOWLEDGEMENT_CHARS:
        limit = MAX_ACKNOWLEDGEMENT_CHARS
        raise ArgumentsError(f"note={note!r:.60}: give 1 to {limit} printable characters in one line")
    kind = await _known_kind(queue, fingerprint)
    store = queue.app._client().store
    await acknowledgements.write(store, queue.name, fingerprint, by, note, busiest_window(kind.minutes))


@audited("withdraw acknowledgement", of_queue)
async def withdraw(queue: Queue, fingerprint: str, by: str) -> None:
    """Show a kind of error again like any other."""
    if not await acknowledgements.withdraw(queue.app._client().store, queue.name, fingerprint):
        raise NotFound(f'queue "{queue.name}": the error {fingerprint[:40]} is not acknowledged')


@dataclass(frozen=True, slots=True)
class KnownError:
    """An acknowledged kind of error, and why it needs attention again; None while it does not."""

    acknowledgement: Acknowledgement
    returned: Returned | None


async def states(queue: Queue, kinds: Collection[str]) -> dict[str, KnownError]:
    """Those of some kinds that are acknowledged, by their fingerprints."""
    noted = await acknowledgements.read(queue.app._client().store, queue.name)
    if noted.keys().isdisjoint(kinds):
        return {}
    counted = await read_error_kinds(await queue._partitions(), MAX_ERROR_MINUTES)
    return {
        kind.fingerprint: KnownError(known, known.returned(kind.since_ms, kind.minutes))
        for kind in counted
        if kind.fingerprint in kinds and (known := noted.get(kind.fingerprint)) is not None
    }


async def _known_kind(queue: Queue, fingerprint: str) -> ErrorKind:
    if is_fingerprint(fingerprint):
        for kind in await read_error_kinds(await queue._partitions(), RECENT_KIND_MINUTES):
            if kind.fingerprint == fingerprint and kind.total:
                return kind
    raise NotFound(
        f'queue "{queue.name}": no job has failed with the kind of error {fingerprint[:40]} lately; '
        f'"qbull failures {queue.name}" lists the kinds'
    )
