"""Many partitions are read in few round trips, and a cluster's nodes each for their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbull.config import QueueSettings
from qbull.core.record import Body, pack
from qbull.store.connection import fan_out
from qbull.store.connection.cluster import ClusterServer
from qbull.store.connection.server import ErrorReply
from qbull.store.read import inspect
from qbull.store.store import Store
from qbull.store.verbs.partition import NewJob, Partition
from topology import Cluster, raised_cluster

QUEUE = QueueSettings("wide", partitions=200)


async def filled(store: Store) -> list[Partition]:
    """200 partitions; every third has a job of its own."""
    partitions = [store.partition(QUEUE, number) for number in range(QUEUE.partitions)]
    for partition in partitions[::3]:
        await partition.enqueue(
            [NewJob(f"job-{partition.number}", 0, pack(Body("ship", b"{}"), priority=5, lane=b""))]
        )
    return partitions


async def test_each_partition_answers_for_itself_in_a_few_round_trips(store: Store) -> None:
    partitions = await filled(store)
    await inspect.counts(partitions[:1])
    before = await reads(store)

    counts = await inspect.counts(partitions)

    assert [one.waiting for one in counts] == [int(number % 3 == 0) for number in range(200)]
    assert await reads(store) - before < 10


async def test_a_server_that_has_forgotten_the_script_is_told_it_again(store: Store) -> None:
    partitions = await filled(store)
    await store.server.call("SCRIPT", "FLUSH")

    counts = await inspect.counts(partitions)

    assert sum(one.waiting for one in counts) == 67


async def test_an_error_is_raised_and_the_next_answers_are_right_ones(store: Store) -> None:
    partitions = await filled(store)
    await store.server.call("SET", partitions[100].base + "kept", "no hash")

    with pytest.raises(ErrorReply, match="of the wrong type"):
        await inspect.counts(partitions)
    await store.server.call("DEL", partitions[100].base + "kept")

    assert sum(one.waiting for one in await inspect.counts(partitions)) == 67
    assert sum(store.server.errors.values()) == 1


async def test_who_knows_a_job_is_asked_of_all_at_once(store: Store) -> None:
    partitions = await filled(store)

    assert [one.number for one in await fan_out.partitions_holding(partitions, "job-42")] == [42]
    assert await fan_out.partitions_holding(partitions, "job-43") == []
    assert await fan_out.partitions_holding([], "job-43") == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with raised_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(60)
async def test_the_nodes_of_a_cluster_are_each_asked_for_what_they_have(
    cluster: Cluster, tmp_path: Path
) -> None:
    store = Store(cluster.url, "test")
    await store.open()
    try:
        partitions = await filled(store)

        counts = await inspect.counts(partitions)
        groups = await store.server.group_by_node([partition.base for partition in partitions])
        there = await fan_out.partitions_holding(partitions, "job-42")
        assert isinstance(store.server, ClusterServer)
        store.server._owners.reverse()  # as after slots have moved: each node says that they are another's
        again = await store.retrying(
            lambda: inspect.counts(partitions)
        )  # it asks around at most every moment
    finally:
        await store.close()

    assert [one.waiting for one in counts] == [int(number % 3 == 0) for number in range(200)]
    assert again == counts
    assert len(groups) == 3 and sorted(at for group in groups for at in group) == list(range(200))
    assert [one.number for one in there] == [42]


async def reads(store: Store) -> int:
    info = (await store.server.call("INFO", "stats")).decode()
    return int(info.split("total_reads_processed:")[1].split("\r\n")[0])
