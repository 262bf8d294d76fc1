"""A worker runs what the server counts as its own, also if no reply ever told it so.

Two failovers shortly after each other leave such a delivery: an outcome was accepted by a primary that was replaced a moment
later, and on the new primary the job is still this worker's.
"""

from __future__ import annotations

import asyncio

import pytest

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.worker import fetch

SAVE = """
local saved = {}
for _, name in ipairs(redis.call('KEYS', '{test:orders:0}:*')) do
  saved[#saved + 1] = name
  saved[#saved + 1] = math.max(redis.call('PTTL', name), 0)
  saved[#saved + 1] = redis.call('DUMP', name)
end
return saved
"""
RESTORE = """
for _, name in ipairs(redis.call('KEYS', '{test:orders:0}:*')) do redis.call('DEL', name) end
for i = 1, #ARGV, 3 do redis.call('RESTORE', ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
"""


@pytest.mark.parametrize("max_active", [None, 5])
async def test_a_delivery_that_its_worker_does_not_know_of_is_run(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch, max_active: int | None
) -> None:
    monkeypatch.setattr(fetch, "PENDING_CHECK_SECONDS", 0.3)
    monkeypatch.setattr(fetch, "FETCH_BLOCK_SECONDS", 0.1)
    queue = app.queue("orders", order="key", max_active=max_active)
    started, may_end = asyncio.Event(), asyncio.Event()

    @queue.task(key="{order}")
    async def take(order: str) -> None:
        started.set()
        await may_end.wait()

    job = await take.enqueue(order="a")
    async with app.worker():
        await asyncio.wait_for(started.wait(), 60)
        as_it_was = await store.server.call("EVAL", SAVE, 0)
        may_end.set()
        await job.result(timeout=60)
        # Past the second look that follows a start or an outage.
        await asyncio.sleep(fetch.CLOSED_READ_GRACE_SECONDS + 0.5)
        await store.server.call("EVAL", RESTORE, 0, *as_it_was)
        behind = await take.enqueue(order="a")

        async def both_are_done() -> bool:
            return (await job.state(), await behind.state()) == ("completed", "completed")

        await eventually(both_are_done, within=60)
