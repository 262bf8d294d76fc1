"""The deliveries that a worker has not settled, as the server knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbull.store.connection.server import ErrorReply
from qbull.store.delivery import Delivery
from qbull.store.store import ReadyStream, Store
from qbull.store.verbs.partition import Partition

MAX_PENDING_DELIVERIES = 10_000
"""How many are read of each stream."""


async def pending_deliveries(store: Store, worker: str, partitions: Sequence[Partition]) -> list[Delivery]:
    """The deliveries of these partitions that the server counts as pending for a worker."""
    return await pending_in(store, worker, await store.streams(partitions))


async def pending_in(store: Store, worker: str, streams: Mapping[bytes, ReadyStream]) -> list[Delivery]:
    """The same for these streams: one call for all, or for each partition on a cluster."""
    groups: dict[str, dict[bytes, ReadyStream]] = {}
    for name, stream in streams.items():
        groups.setdefault(stream.partition.base if store.server.same_slot_only else "", {})[name] = stream
    found: list[Delivery] = []
    for group in groups.values():
        try:
            found += await _pending(store, worker, group)
        except ErrorReply as error:
            if error.code != "NOGROUP":
                raise
            # One of them is not read yet, or the server was emptied.
            for name, stream in group.items():
                found += await _pending_if_read(store, worker, {name: stream})
    return found


async def _pending(store: Store, worker: str, streams: dict[bytes, ReadyStream]) -> list[Delivery]:
    return await store.fetch(streams, worker, MAX_PENDING_DELIVERIES, None, again=True)


async def _pending_if_read(store: Store, worker: str, streams: dict[bytes, ReadyStream]) -> list[Delivery]:
    try:
        return await _pending(store, worker, streams)
    except ErrorReply as error:
        if error.code != "NOGROUP":
            raise
        return []
