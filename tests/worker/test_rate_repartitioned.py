"""The rate of a lane holds while its queue is repartitioned: starts in its old partition still count in the new one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from test_rate_limits import most_in_any

import qbull
from conftest import eventually
from qbull.store.store import Store
from qbull.store.verbs.move import PartitionMoves
from topology import raised_cluster

WINDOW_SECONDS = 4.0


class Crm:
    """A queue whose keys may start five jobs in four seconds, and when its jobs started."""

    def __init__(self, app: qbull.App) -> None:
        self.starts: list[float] = []
        self.queue = app.queue(
            "crm",
            partitions=1,
            concurrency=20,
            lane=qbull.Lane(limit=3, rate=qbull.Rate(5, per=WINDOW_SECONDS)),
            keep=qbull.Keep(completed=0),
        )

        @self.queue.task(key="{tenant}")
        async def sync(tenant: str) -> None:
            self.starts.append(time.monotonic())

        self.sync = sync

    async def enqueue(self, many: int) -> None:
        await self.sync.enqueue_many([{"tenant": "busy"}] * many)

    async def have_started(self, many: int) -> bool:
        return len(self.starts) >= many

    def check(self) -> None:
        assert most_in_any(WINDOW_SECONDS, self.starts) <= 5


async def repartition_twice(app: qbull.App) -> None:
    crm = Crm(app)
    async with app.worker(), app.worker():
        await crm.enqueue(3)
        await eventually(lambda: crm.have_started(3))
        await crm.queue.repartition(3)
        await crm.enqueue(3)
        await eventually(lambda: crm.have_started(6))
        await crm.queue.repartition(4)
        await crm.enqueue(6)
        await eventually(lambda: crm.have_started(12), within=40)
    crm.check()


@pytest.mark.timeout(120)
async def test_a_key_has_no_more_starts_than_its_rate_over_two_repartitions(app: qbull.App) -> None:
    await repartition_twice(app)


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(120)
async def test_the_same_if_the_partitions_are_on_different_nodes_of_a_cluster(tmp_path: Path) -> None:
    with raised_cluster(tmp_path) as raised:
        app = qbull.App(raised.url, prefix="test")
        await repartition_twice(app)
        await app.close()


@pytest.mark.timeout(120)
async def test_a_worker_that_starts_when_the_old_partition_is_empty_counts_its_starts_too(
    app: qbull.App, store: Store
) -> None:
    crm = Crm(app)
    async with app.worker() as worker:
        await crm.enqueue(5)
        await eventually(lambda: crm.have_started(5))
        await crm.queue.repartition(3)
        await worker.drain()

    async with app.worker():
        await crm.enqueue(5)
        await eventually(lambda: crm.have_started(10), within=40)
    crm.check()

    async def is_forgotten() -> bool:
        await PartitionMoves(store, crm.queue.settings).all_steps()
        return (await store.layout(crm.queue.settings)).older == ()

    await eventually(is_forgotten, within=40)
