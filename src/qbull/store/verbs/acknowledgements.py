"""Acknowledged kinds of errors of a queue. They are stored with the queue, for 30 days."""

from __future__ import annotations

from qbull.core.acknowledgement import Acknowledgement
from qbull.core.record import to_datetime
from qbull.store.retry import idempotent
from qbull.store.store import Store


@idempotent
async def write(store: Store, queue: str, fingerprint: str, by: str, note: str, recent: int) -> None:
    """Acknowledge a kind of error. A later note replaces the one before."""
    await store.server.script("acknowledge", store.names.queue(queue), fingerprint, by, note, recent)


@idempotent
async def withdraw(store: Store, queue: str, fingerprint: str) -> bool:
    """Forget an acknowledgement. Returns False if there was none."""
    return bool(await store.server.script("acknowledge", store.names.queue(queue), fingerprint, "", "", 0))


@idempotent
async def read(store: Store, queue: str) -> dict[str, Acknowledgement]:
    """The acknowledged kinds of a queue by their fingerprints."""
    name = store.names.queue(queue) + "acknowledged"
    found: dict[str, Acknowledgement] = {}
    cursor = b"0"
    while True:
        cursor, flat = await store.server.call("HSCAN", name, cursor, "COUNT", 200)
        for kind, packed in zip(flat[::2], flat[1::2], strict=True):
            numbers, by, note = packed.decode("utf-8", "replace").split("\n", 2)
            at_ms, recent = numbers.split(" ")
            found[kind.decode()] = Acknowledgement(by, to_datetime(int(at_ms)), note, int(recent))
        if cursor == b"0":
            return found
