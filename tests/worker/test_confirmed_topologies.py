"""Confirmed order where servers really fail over: under sentinels, in a cluster, and between its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.crc import key_slot
from test_confirmed_order import Steps, frozen, is_empty, until_asked

import qbull
from conftest import eventually, every_fault
from qbull.core.layout import Generation
from qbull.core.route import digest
from topology import DURABLE, Cluster, Node, Trio, raised_cluster, raised_pair, raised_trio, wait_for

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(180)]


async def test_without_confirmed_order_the_next_job_does_not_wait_for_the_replica(tmp_path: Path) -> None:
    with raised_pair(tmp_path) as pair:
        app = qbull.App(pair.url, prefix="test", durability="replicated")
        steps = Steps(app.queue("work", order="key", confirm_order=False))
        async with app.worker():
            await steps.enqueue(1, 2)
            await steps.until_started(1)
            with frozen(pair.replicas[0]):
                steps.event(1).set()
                await steps.until_started(2)
            steps.event(2).set()
        await app.close()


async def test_no_job_runs_again_behind_a_later_one_after_a_failover_of_sentinels(tmp_path: Path) -> None:
    with raised_trio(tmp_path, DURABLE) as trio:
        master = trio.master()
        replicas = [node for node in trio.servers if node is not master]
        await fail_over_behind_job_one(trio.url, master, replicas, lambda: has_new_master(trio, master))


async def test_no_job_runs_again_behind_a_later_one_after_a_failover_in_a_cluster(tmp_path: Path) -> None:
    with raised_cluster(tmp_path, DURABLE) as cluster:
        primary = owner_of(cluster, 0)
        replica = replica_of(cluster, primary)
        await fail_over_behind_job_one(
            cluster.url, primary, [replica], lambda: owner_of(cluster, 0) is not primary
        )


async def fail_over_behind_job_one(
    url: str, primary: Node, replicas: list[Node], has_failed_over: Callable[[], bool]
) -> None:
    """The primary dies when job 1 has ended there and no replica knows it. Job 1 runs again before job 2."""
    app = qbull.App(url, prefix="test", durability="replicated")
    steps = Steps(app.queue("work", order="key"))
    async with app.worker():
        first, *_ = await steps.enqueue(1, 2, 3)
        await steps.until_started(1)
        with ExitStack() as cut_off:
            for replica in replicas:
                cut_off.enter_context(frozen(replica))
            steps.event(1).set()
            await steps.until_completed(first)
            await until_asked(primary, steps, 2)
            primary.kill()
        await asyncio.to_thread(wait_for, has_failed_over, 60)
        assert 2 not in steps.started
        primary.start()
        for n in (2, 3):
            steps.event(n).set()
        await eventually(lambda: is_empty(steps.queue), within=90)

    # It has run again, unless its outcome was on its way and has reached the new primary instead.
    assert steps.started in ([1, 1, 2, 3], [1, 2, 3])
    assert await every_fault(app._client().store) == []
    await app.close()


def has_new_master(trio: Trio, old: Node) -> bool:
    return trio.master() is not old and trio.master().is_primary()


async def test_a_key_starts_on_its_new_node_when_the_replica_of_the_old_one_knows_that_it_is_empty(
    tmp_path: Path,
) -> None:
    with raised_cluster(tmp_path, DURABLE) as cluster:
        old, replica, count = owner_of(cluster, 0), replica_of(cluster, owner_of(cluster, 0)), 2
        while owner_of(cluster, Generation(1, count).home(digest("one key"))) is old:
            count += 1
        app = qbull.App(cluster.url, prefix="test", durability="replicated")
        steps = Steps(app.queue("work", order="key", partitions=1))
        async with app.worker():
            first, *_ = await steps.enqueue(1)
            await steps.until_started(1)
            await steps.queue.repartition(count)
            await steps.enqueue(2)

            with frozen(replica):
                steps.event(1).set()
                await steps.until_completed(first)
                await until_asked(old, steps, 2)
                await until_asked(old, steps, 2)
                assert steps.started == [1]

            await steps.until_started(2)
            assert knows_outcome(replica, first)
            steps.event(2).set()
        assert await every_fault(app._client().store) == []
        await app.close()


def owner_of(cluster: Cluster, partition: int) -> Node:
    return cluster.owner(key_slot(f"{{test:work:{partition}}}:index".encode()))


def replica_of(cluster: Cluster, primary: Node) -> Node:
    return next(
        node for node in cluster.replicas() if node.info("replication")["master_port"] == primary.port
    )


def knows_outcome(replica: Node, id: str) -> bool:
    with replica.client as client:
        client.execute_command("READONLY")
        return bool((client.execute_command("HGET", "{test:work:0}:index", id) or b"").startswith(b"c"))
