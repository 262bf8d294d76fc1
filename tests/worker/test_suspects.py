"""A job that was there when workers died runs alone, marked before it begins; also where the server is away just then."""

from __future__ import annotations

import pytest

import qbull
from proxy import Proxy
from qbull.embedded import Embedded
from qbull.store.partition import Partition
from qbull.store.store import Store


async def make_suspect(store: Store, queue: qbull.Queue) -> None:
    """Everything of the queue has seen two workers die."""
    (partition,) = await store.partitions(queue.settings)
    for _ in range(2):
        streams = await store.streams([partition])
        await store.ensure_groups(streams)
        (delivery,) = await store.fetch(streams, "dead", 10, None)
        await partition.reclaim("dead", b"", [delivery.place])


@pytest.mark.timeout(60)
async def test_a_suspect_waits_for_a_server_that_is_away_when_it_is_to_be_marked(
    server: Embedded, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be failed without having run, and where it had one attempt that was its end."""
    mark, tries = Partition.mark_alone, 0
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        queue = app.queue("work", retry=qbull.Retry(attempts=1))

        @queue.task
        async def step() -> int:
            return qbull.current_job().attempt

        async def mark_while_away(self: Partition, job: bytes, place: bytes) -> None:
            nonlocal tries
            tries += 1
            proxy.mood = "away" if tries == 1 else "fair"
            try:
                await mark(self, job, place)
            finally:
                proxy.mood = "fair"

        monkeypatch.setattr(Partition, "mark_alone", mark_while_away)
        job = await step.enqueue()
        await make_suspect(store, queue)

        async with app.worker():
            assert await job.result(timeout=30) == 1
        await app.close()

    assert tries > 1
