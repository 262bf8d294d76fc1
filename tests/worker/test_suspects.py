"""A job that was there when workers died runs alone, marked before it begins; also where the server is away just then."""

from __future__ import annotations

import asyncio

import pytest

import qbull
from proxy import Proxy
from qbull.embedded.server import EmbeddedServer
from qbull.store.store import Store
from qbull.store.verbs.partition import Partition


async def make_suspect(store: Store, queue: qbull.Queue) -> None:
    """Everything of the queue has seen two workers die."""
    (partition,) = await store.partitions(queue.settings)
    for _ in range(2):
        streams = await store.streams([partition])
        await store.ensure_groups(streams)
        (delivery,) = await store.fetch(streams, "dead", 10, None)
        await partition.reclaim("dead", b"", [delivery.position])


@pytest.mark.timeout(60)
async def test_a_suspect_waits_for_a_server_that_is_away_when_it_is_to_be_marked(
    server: EmbeddedServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be failed without having run, and where it had one attempt that was its end."""
    mark, tries = Partition.mark_isolated, 0
    async with Proxy(server.socket).running() as proxy:
        app = qbull.App(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", prefix="test")
        queue = app.queue("work", retry=qbull.Retry(attempts=1))

        @queue.task
        async def step() -> int:
            return qbull.current_job().attempt

        async def mark_while_away(self: Partition, job: bytes, place: bytes) -> bool:
            nonlocal tries
            tries += 1
            proxy.mood = "away" if tries == 1 else "fair"
            try:
                return await mark(self, job, place)
            finally:
                proxy.mood = "fair"

        monkeypatch.setattr(Partition, "mark_isolated", mark_while_away)
        job = await step.enqueue()
        await make_suspect(store, queue)

        async with app.worker():
            assert await job.result(timeout=30) == 1
        await app.close()

    assert tries > 1


@pytest.mark.timeout(60)
async def test_nothing_waits_with_a_suspect_whose_mark_is_refused(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node may be away, or may refuse for good: jobs of others must not wait for that."""
    mark, refused = Partition.mark_isolated, asyncio.Event()
    suspects, others = app.queue("suspects"), app.queue("others")

    @suspects.task
    async def step() -> None: ...

    @others.task
    async def touch() -> None: ...

    async def refuse(self: Partition, job: bytes, place: bytes) -> bool:
        if not touched:
            refused.set()
            raise qbull.ServerRefused("not now")
        return await mark(self, job, place)

    touched = False
    monkeypatch.setattr(Partition, "mark_isolated", refuse)
    suspect = await step.enqueue()
    await make_suspect(store, suspects)

    async with app.worker():
        await refused.wait()
        await (await touch.enqueue()).result(timeout=30)
        touched = True
        await suspect.result(timeout=30)


async def test_a_suspect_that_is_another_workers_by_now_is_not_begun(
    app: qbull.App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, ran = Partition.mark_isolated, list[str]()
    queue = app.queue("work")

    @queue.task
    async def step() -> None:
        ran.append(qbull.current_job().id)

    async def mark_too_late(self: Partition, job: bytes, place: bytes) -> bool:
        monkeypatch.setattr(Partition, "mark_isolated", mark)
        return await mark(self, job, b"5" + b"1-1")  # as though the delivery was an older one

    monkeypatch.setattr(Partition, "mark_isolated", mark_too_late)
    job = await step.enqueue()
    await make_suspect(store, queue)

    async with app.worker():
        await job.result(timeout=30)

    assert ran == [job.id]
