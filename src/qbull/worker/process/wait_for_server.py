"""Reach: wait for the server before anything is started, as containers find it.

Called by the processes that have no work without it.
"""

from __future__ import annotations

import asyncio

from qbull.errors import ServerAway
from qbull.store.store import Store
from qbull.worker.outage import Outage


async def wait_for_server(store: Store, outage: Outage, stop: asyncio.Event) -> bool:
    """Wait for an unavailable server, and raise if it refuses. Returns False if `stop` came first."""
    reaching = asyncio.create_task(_open_store(store, outage))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([reaching, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not reaching.done():
        reaching.cancel()
        await asyncio.wait([reaching])
        return False
    await reaching
    return not stop.is_set()  # it may have come in the same turn


async def _open_store(store: Store, outage: Outage) -> None:
    try:
        await store.retrying(store.open)
    except ServerAway:  # not EmbeddedError: no other process will start the embedded server
        await outage.retry_until_up(store.open, refusals=False)
