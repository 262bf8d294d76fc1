"""Histograms of a queue: the sums of what all its workers have counted."""

from __future__ import annotations

from collections.abc import Mapping

from qbull.store.store import Store


async def add(store: Store, queue: str, token: str, counted: Mapping[str, int]) -> int:
    """Add new counts. A call that is sent twice counts once.

    Returns the server's time in milliseconds.
    """
    flat = [part for pair in counted.items() for part in pair]
    now_ms: int = await store.server.script("histograms", store.names.queue(queue), token, *flat)
    return now_ms


def take_errors(store: Store, queue: str) -> int:
    """The number of this queue's scripts that the server refused to this process since the last call."""
    of_queue, of_partitions = store.names.queue(queue), store.names.queue(queue)[:-2] + ":"
    errors = store.server.errors
    return sum(errors.pop(key) for key in list(errors) if key.startswith((of_queue, of_partitions)))


async def read(store: Store, queue: str) -> dict[str, int]:
    flat = await store.server.call("HGETALL", store.names.queue(queue) + "figures")
    return {name.decode("utf-8", "replace"): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
