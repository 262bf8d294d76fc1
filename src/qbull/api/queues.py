"""Queues: what there is, and how much of it."""

from __future__ import annotations

import asyncio
from typing import Any

from qbull import wire as plain
from qbull.api import wire
from qbull.api.endpoint import Call, Endpoint, Nothing
from qbull.api.site import Site, now
from qbull.api.wire import shaped
from qbull.queue import Queue

AT_ONCE = 8
"""Queues whose counts are read at a time."""


async def counts(site: Site) -> dict[str, dict[str, Any]]:
    """The counts of all queues by name."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(queue: Queue) -> dict[str, Any]:
        async with turn:
            return plain.stats(queue.name, await queue.stats())

    found = await asyncio.gather(*(one(queue) for queue in await site.queues()))
    return {made["name"]: made for made in found}


async def all_stats(call: Call[Nothing, Nothing]) -> wire.AllStats:
    found = await counts(call.site)
    return wire.AllStats(timestamp=now(), queues=shaped(found, dict[str, wire.Stats]))


async def queue_stats(call: Call[Nothing, Nothing]) -> wire.QueueStats:
    queue = await call.site.queue(call.path["queue"])
    made = plain.stats(queue.name, await queue.stats())
    return shaped({**made, "timestamp": now()}, wire.QueueStats)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/api/queues/stats",
        role="viewer",
        summary="The counts of all queues",
        handler=all_stats,
        answer=wire.AllStats,
    ),
    Endpoint(
        method="GET",
        path="/api/queues/{queue}/stats",
        role="viewer",
        summary="The counts of one queue",
        handler=queue_stats,
        answer=wire.QueueStats,
        problems=(404,),
    ),
]
