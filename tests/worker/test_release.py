"""A worker gives back only deliveries that it has: after a failover, another worker may run them."""

from __future__ import annotations

import asyncio

import qbull
from conftest import eventually
from qbull.store.names import ready_stream
from qbull.store.store import Store


async def test_a_worker_that_stops_leaves_deliveries_alone_that_another_worker_has(
    app: qbull.App, store: Store
) -> None:
    queue = app.queue("work", concurrency=1)
    go, started = asyncio.Event(), asyncio.Event()

    @queue.task
    async def step() -> None:
        started.set()
        await go.wait()

    await step.enqueue()
    stream = ready_stream(store.partition(queue.settings, 0).base, "5")
    async with app.worker() as worker:
        await asyncio.wait_for(started.wait(), 20)
        [[entry, *_]] = await store.server.call("XPENDING", stream, "workers", "-", "+", 10)
        # As after a failover that has lost the fetch: the new primary has delivered it to another worker.
        await store.server.call("XCLAIM", stream, "workers", "other", 0, entry)
        await worker.stop(grace=0.1)

        [[still, holder, *_]] = await store.server.call("XPENDING", stream, "workers", "-", "+", 10)
        assert (still, holder) == (entry, b"other")
    go.set()

    assert await store.server.call("XLEN", ready_stream(store.partition(queue.settings, 0).base, "0")) == 0
    await eventually(lambda: _reclaimed(store, queue))


async def _reclaimed(store: Store, queue: qbull.Queue) -> bool:
    return (await store.partition(queue.settings, 0).reclaim("other", b"", [])).deliveries >= 0
