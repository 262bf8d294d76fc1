"""Usage: read the memory and CPU that came with the last heartbeats of workers."""

from __future__ import annotations

from collections.abc import Sequence

from qbull.store.retry import idempotent
from qbull.store.store import Store
from qbull.store.verbs.workers import ProcessUsage, unpack_usage


@idempotent
async def worker_usage(store: Store, workers: Sequence[str]) -> dict[str, ProcessUsage]:
    """The memory and CPU of these workers. Those that nobody has measured are left out."""
    if not workers:
        return {}
    fields = [f"usage {worker}" for worker in workers]
    found = await store.server.call("HMGET", store.names.roster, *fields)
    read = zip(workers, map(unpack_usage, found), strict=True)
    return {worker: usage for worker, usage in read if usage is not None}
