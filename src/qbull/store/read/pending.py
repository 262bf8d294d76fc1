"""The deliveries that a worker has not settled, as the server knows them."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.store.connection.server import ErrorReply
from qbull.store.delivery import Delivery
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


async def pending_deliveries(store: Store, worker: str, partitions: Sequence[Partition]) -> list[Delivery]:
    """The deliveries of these partitions that the server counts as pending for a worker."""
    found: list[Delivery] = []
    for partition in partitions:
        for name, stream in (await store.streams([partition])).items():
            try:
                found += await store.fetch({name: stream}, worker, 10_000, None, again=True)
            except ErrorReply as error:
                if error.code != "NOGROUP":  # not read yet, or the server was emptied
                    raise
    return found
