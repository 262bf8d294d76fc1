"""Moving to a cluster and away from one, while the command is killed and while slots and primaries change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from moving import PREFIX, MoveUnderLoad, Shop, silent

import qbull
from conftest import eventually, every_fault, strays
from qbull.manage.server_move import ServerMove
from qbull.store.connection.cluster import slot_of
from qbull.store.copy_names import names_under
from qbull.store.store import Store
from topology import Cluster, Node, raised_cluster, wait_for

pytestmark = [pytest.mark.xdist_group("move_cluster"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with raised_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(raised: Cluster) -> Cluster:
    raised.heal()
    return raised


@asynccontextmanager
async def moved(old_url: str, new_url: str) -> AsyncIterator[tuple[Shop, Shop]]:
    """The shop at both servers. Afterwards every job at the new one must be in exactly one place."""
    old, new = Shop(old_url), Shop(new_url)
    yield old, new
    there = Store(new_url, PREFIX)
    await there.open()
    faults, stray = await every_fault(there), await strays(there)
    await there.close()
    await old.app.close()
    await new.app.close()
    assert (faults, stray) == ([], [])


def slot_owner(cluster: Cluster, base: str) -> tuple[int, Node, Node]:
    """The slot of a partition, the primary that owns it, and another primary."""
    slot = slot_of(("GET", base)) or 0
    owner = cluster.owner(slot)
    return slot, owner, next(node for node in cluster.primaries() if node is not owner)


def base_of(shop: Shop, number: int = 0) -> str:
    return shop.app._client().store.partition(shop.orders.settings, number).base


@pytest.mark.parametrize("is_away", [False, True], ids=["to a cluster", "from a cluster"])
async def test_everything_of_a_prefix_moves(
    server_url: str, store: Store, cluster: Cluster, is_away: bool
) -> None:
    urls = (cluster.url, server_url) if is_away else (server_url, cluster.url)
    async with moved(*urls) as (old, new):
        async with old.app.worker():
            done = await old.send.enqueue(1)
            assert await done.result(timeout=20) == 1
        ordered = [await old.place.enqueue(who, n) for n in range(20) for who in ("ada", "bob")]
        delayed = await old.send.options(delay=3600).enqueue(2)
        flow = await qbull.group(old.send.step(6), old.send.step(7), then=old.collect.step()).enqueue()
        await old.app.schedules.upsert("nightly", old.send, cron="0 3 * * *", args={"n": 8})

        assert await ServerMove(old.app, new.app).run(20, silent) == []

        assert (await old.orders.stats()).total == (await old.mail.stats()).total == 0
        assert {plan.name for plan in await new.app.schedules.list()} == {"nightly"}
        assert await new.app.job("mail", done.id).result(timeout=1) == 1
        assert (await new.app.job("mail", delayed.id).info()).state == "delayed"
        with pytest.raises(qbull.ServerError, match=r"was moved to .*Set QBULL_URL"):
            await old.place.enqueue("ada", 1)
        async with new.app.worker():
            for job in ordered:
                await new.app.job("orders", job.id).result(timeout=20)
            assert await new.app.job("mail", flow.last.id).result(timeout=20) == [6, 7]
        for who in ("ada", "bob"):
            assert [n for _, name, n in new.ran if name == who] == list(range(20))


@pytest.mark.parametrize("event", ["a failover", "a slot moves"])
async def test_each_job_runs_once_and_in_order_although_the_command_is_killed_and_the_target_changes(
    server_url: str, store: Store, cluster: Cluster, event: str
) -> None:
    async with moved(server_url, cluster.url) as (old, new):
        slot, owner, other = slot_owner(cluster, base_of(new))

        def change() -> None:
            if event == "a slot moves":
                for _ in cluster.move(slot, owner, other):
                    pass
                wait_for(lambda: cluster.owner(slot) is other)
                return
            replica = next(
                node for node in cluster.replicas() if node.info("replication")["master_port"] == owner.port
            )
            replica.tell("CLUSTER", "FAILOVER")
            wait_for(lambda: replica.is_primary() and replica in cluster.primaries())

        load = MoveUnderLoad(old, new)
        await load.run(
            ["--queue", "orders"], kills=[True, True, False], meanwhile=lambda: asyncio.to_thread(change)
        )

        assert cluster.owner(slot) is not owner


@pytest.mark.parametrize("is_away", [False, True], ids=["to a cluster", "from a cluster"])
async def test_a_partition_whose_slot_is_on_two_nodes_moves_when_it_is_on_one(
    server_url: str, store: Store, cluster: Cluster, is_away: bool
) -> None:
    urls = (cluster.url, server_url) if is_away else (server_url, cluster.url)
    async with moved(*urls) as (old, new):
        await old.app.schedules.upsert("nightly", old.place, cron="0 3 * * *", args={"customer": "a", "n": 1})
        jobs = [await old.place.enqueue(f"k{n % 30}", n) for n in range(300)]
        clustered = old if is_away else new
        slot, owner, other = slot_owner(cluster, base_of(clustered))
        if not is_away:
            # The names that belong to the slot: a half-done move of it leaves some on each node.
            for n in range(20):
                owner.tell("SET", f"{base_of(new)}once:{n}", n, "EX", 60)
        steps = cluster.move(slot, owner, other)
        for _ in range(6):
            next(steps)

        moving = asyncio.create_task(ServerMove(old.app, new.app).run(60, silent))
        await eventually(lambda: _is_refused(owner))
        assert not moving.done()
        await asyncio.to_thread(lambda: [None for _ in steps])

        assert await moving == []
        async with new.app.worker():
            for job in jobs:
                await new.app.job("orders", job.id).result(timeout=20)
        assert sorted(n for _, _, n in new.ran) == list(range(300))


async def _is_refused(owner: Node) -> bool:
    """Whether the node has refused a command because the slot is on its way."""
    return owner.info("errorstats").get("errorstat_ASK", {"count": 0})["count"] > 3


async def test_names_of_a_slot_that_is_on_two_nodes_are_not_listed(cluster: Cluster) -> None:
    store = Store(cluster.url, PREFIX)
    await store.open()
    base = store.names.app + "{listed}:"
    for n in range(20):
        await store.server.call("SET", f"{base}{n}", n)
    slot, owner, other = slot_owner(cluster, base)
    heard = []
    for step in cluster.move(slot, owner, other):
        heard.append(step)
        with pytest.raises(qbull.ServerAway, match=f"slot {slot} moves"):
            await store.server.converse(base, lambda talk: names_under(talk, base))

    async def listed() -> list[bytes] | None:
        # The first call after the move may still ask the node that had the slot.
        with suppress(qbull.ServerAway):
            return await store.server.converse(base, lambda talk: names_under(talk, base))
        return None

    names = await eventually(listed)
    await store.close()

    assert sorted(map(int, names)) == list(range(20))
    assert len(heard) > 20
