"""A cluster is one server to everybody above it: through redirections, moving slots and failovers."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from partition_driver import PartitionDriver, ids_of

from conftest import eventually, every_fault
from qbull.errors import ConfigError, ServerAway, ServerRefused
from qbull.store.connection import server
from qbull.store.connection.cluster import ClusterServer, slot_of
from qbull.store.connection.server import Address, ErrorReply, Server, open_server
from qbull.store.connection.tls import TlsSettings
from qbull.store.store import Store
from topology import COMMON, PASSWORD, Cluster, Node, raised_cluster, wait_for

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with raised_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(raised: Cluster) -> Cluster:
    raised.heal()
    return raised


@pytest.fixture
async def whole(cluster: Cluster) -> AsyncIterator[Server]:
    server = open_server(cluster.url)
    yield server
    await server.close()


@pytest.fixture
async def cluster_store(cluster: Cluster, whole: Server) -> AsyncIterator[Store]:
    store = Store(cluster.url, "test")
    store.server = whole
    store = store.without_retry
    await store.open()
    yield store
    assert await every_fault(store) == []


async def test_commands_reach_the_node_that_owns_their_key(cluster: Cluster, whole: Server) -> None:
    names = [f"name:{random.getrandbits(64)}" for _ in range(200)]

    for name in names:
        await whole.call("SET", name, "1")

    assert len({cluster.owner(slot_of(("GET", name)) or 0).port for name in names}) == 3
    for name in names:
        assert cluster.owner(slot_of(("GET", name)) or 0).tell("GET", name) == b"1"
    assert errors_of(*cluster.nodes) == {}


async def test_replicas_are_never_written_to(cluster: Cluster, whole: Server) -> None:
    before = cluster.replicas()
    for n in range(50):
        await whole.call("SET", f"name:{n}", n)
    victim = cluster.replicas()[0]

    await fail_over(cluster, victim)
    for n in range(50):
        await whole.call("SET", f"name:{n}", n)

    assert victim not in cluster.replicas()
    still = [node for node in before if node is not victim]
    assert errors_of(*still) == {}, "a replica was sent a write, and sent it on"


async def test_many_first_calls_ask_once_who_owns_what(cluster: Cluster, whole: Server) -> None:
    await asyncio.gather(*(whole.call("SET", f"name:{n}", n) for n in range(100)))

    asked = [
        node.info("commandstats").get("cmdstat_cluster|slots", {"calls": 0})["calls"]
        for node in cluster.nodes
    ]
    assert sum(asked) == 1


async def test_a_slot_that_is_moved_name_by_name_loses_and_doubles_no_command(
    cluster: Cluster, whole: Server
) -> None:
    names = [f"{{moving}}:{n}" for n in range(30)]
    slot = slot_of(("GET", names[0])) or 0
    source = cluster.owner(slot)
    target = next(node for node in cluster.primaries() if node is not source)
    sent: Counter[str] = Counter()
    stop = asyncio.Event()

    async def increase() -> None:
        while not stop.is_set():
            name = random.choice(names)
            await whole.call("INCR", name)
            sent[name] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(increase())
        await eventually(lambda: _true(set(sent) == set(names)))
        for _ in cluster.move(slot, source, target):
            so_far = sent.total()
            await eventually(lambda so_far=so_far: _true(sent.total() > so_far + 20))
        so_far = sent.total()
        await eventually(lambda: _true(sent.total() > so_far + 20))
        stop.set()

    assert errors_of(source).keys() == {"errorstat_MOVED", "errorstat_ASK"}
    assert cluster.owner(slot) is target
    for name in names:
        assert int(target.tell("GET", name)) == sent[name]


async def test_a_partition_rests_while_its_slot_is_moved_name_by_name(
    cluster: Cluster, cluster_store: Store
) -> None:
    driver = await PartitionDriver.open(cluster_store, order="key")
    await driver.enqueue("a", "b", key="k")
    await driver.enqueue("later", when=60_000)
    [delivery] = await driver.fetch()
    slot = slot_of(("GET", driver.partition.base)) or 0
    source = cluster.owner(slot)
    target = next(node for node in cluster.primaries() if node is not source)

    refused = 0
    for _ in cluster.move(slot, source, target):
        with pytest.raises(ServerAway, match=rf"slot {slot} is being moved"):
            await driver.enqueue("c", "d")
        refused += 1

    assert refused > 3
    assert await driver.enqueue("c", "d") == set()
    assert await driver.enqueue("a", "c") == {0, 1}
    await driver.finish(delivery)
    assert sorted(id for other in await driver.fetch() for id in ids_of(other)) == ["b", "c", "d"]
    assert (await driver.counts()).completed == 1


async def test_a_slot_that_is_moved_at_once_loses_and_doubles_no_job(
    cluster: Cluster, cluster_store: Store
) -> None:
    driver = await PartitionDriver.open(cluster_store)
    slot = slot_of(("GET", driver.partition.base)) or 0
    source = cluster.owner(slot)
    target = next(node for node in cluster.primaries() if node is not source)

    async with producing(driver) as sent:
        try:
            source.tell(
                "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.tell("CLUSTER", "MYID")
            )
        except redis.ResponseError as error:
            pytest.skip(f"only Valkey 9 and newer can: {error}")
        await asyncio.to_thread(wait_for, lambda: cluster.owner(slot) is target)

    assert "errorstat_MOVED" in errors_of(source)
    assert "errorstat_ASK" not in errors_of(source)
    assert [id for delivery in await driver.fetch(count=100_000) for id in ids_of(delivery)] == sent


async def test_a_killed_primary_is_away_until_its_replica_has_taken_over(
    cluster: Cluster, cluster_store: Store, record_property: Any
) -> None:
    driver = await PartitionDriver.open(cluster_store)
    await driver.enqueue("before")
    victim = cluster.owner(slot_of(("GET", driver.partition.base)) or 0)
    await asyncio.to_thread(victim.wait_for_replicas)

    victim.kill()
    killed = time.monotonic()
    with pytest.raises(ServerAway, match=rf"{victim.place} of redis\+cluster://\*\*\*@.*: cannot be reached"):
        await driver.enqueue("meanwhile")
    await eventually(lambda: goes_through(driver, "meanwhile"))
    record_property("failover_s", time.monotonic() - killed)

    assert await driver.enqueue("before", "meanwhile", "after") == {0, 1}
    assert [id for delivery in await driver.fetch() for id in ids_of(delivery)] == [
        "before",
        "meanwhile",
        "after",
    ]


async def test_whoever_starts_while_a_primary_is_dead_finds_its_successor(
    cluster: Cluster, whole: Server
) -> None:
    store = Store(cluster.url, "test")
    store.server = whole
    store = store.without_retry
    await whole.primaries()  # it has learned who they are
    cluster.primaries()[0].kill()

    with pytest.raises(ServerAway):
        await store.open()

    async def opened() -> bool:
        try:
            await store.open()
        except ServerAway:
            return False
        return True

    await eventually(opened)


async def test_a_frozen_primary_is_given_up_for_its_replica(
    cluster: Cluster, cluster_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALL_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(server, "SERVER_CONNECT_TIMEOUT_SECONDS", 0.3)
    driver = await PartitionDriver.open(cluster_store)
    await driver.enqueue("before")
    victim = cluster.owner(slot_of(("GET", driver.partition.base)) or 0)
    await asyncio.to_thread(victim.wait_for_replicas)

    victim.kill(signal.SIGSTOP)
    try:
        await eventually(lambda: goes_through(driver, "meanwhile"))
    finally:
        victim.kill(signal.SIGCONT)

    await eventually(lambda: _true(not victim.is_primary()))
    assert await driver.enqueue("before", "meanwhile", "after") == {0, 1}


async def test_a_planned_failover_under_load_loses_and_doubles_nothing(
    cluster: Cluster, cluster_store: Store
) -> None:
    driver = await PartitionDriver.open(cluster_store)

    for _ in range(2):
        async with producing(driver) as sent:
            owner = cluster.owner(slot_of(("GET", driver.partition.base)) or 0)
            await fail_over(cluster, replica_of(cluster, owner))

        assert "errorstat_MOVED" in errors_of(owner)
        assert [id for delivery in await driver.fetch(count=100_000) for id in ids_of(delivery)] == sent


async def test_what_is_published_anywhere_is_heard_and_goes_on_when_the_node_dies(
    cluster: Cluster, whole: Server
) -> None:
    messages = whole.listen("news")
    assert await anext(messages) == ("", b"")
    for node in cluster.primaries():
        node.tell("PUBLISH", "news", node.place)
        assert await anext(messages) == ("news", node.place.encode())

    listened = next(node for node in cluster.nodes if node.tell("PUBSUB", "NUMSUB", "news")[1])
    listened.kill()

    assert await anext(messages) == ("", b"")
    next(node for node in cluster.nodes if node.runs).tell("PUBLISH", "news", "more")
    assert await anext(messages) == ("news", b"more")
    await messages.aclose()


async def test_scripts_that_all_nodes_have_forgotten_are_sent_again(
    cluster: Cluster, cluster_store: Store
) -> None:
    drivers = await several_desks(cluster_store, 8)
    for driver in drivers:
        await driver.enqueue("a")

    for node in cluster.nodes:
        node.tell("SCRIPT", "FLUSH")

    for driver in drivers:
        assert await driver.enqueue("a", "b") == {0}


async def test_partitions_are_spread_over_the_nodes_and_each_verb_works_on_all(
    cluster: Cluster, cluster_store: Store
) -> None:
    drivers = await several_desks(cluster_store, 16)
    homes = {cluster.owner(slot_of(("GET", driver.partition.base)) or 0).port for driver in drivers}

    for driver in drivers:
        await driver.enqueue("a", "b", key="k")
        await driver.enqueue("later", when=60_000)
    for driver in drivers:
        for delivery in await driver.fetch():
            await driver.finish(delivery)
        await driver.let_time_pass("later")
        assert await driver.partition.promote() == (1, None, None)
        [late] = await driver.fetch()
        assert await driver.settle(late, 0, "dead")

    assert len(homes) == 3
    for driver in drivers:
        counts = await driver.counts()
        assert (counts.completed, counts.failed) == (2, 1)
    assert await cluster_store.heartbeat(30, ["w1"]) == []
    assert await cluster_store.queues() == ["q"]
    assert errors_of(*cluster.nodes).keys() <= {"errorstat_NOSCRIPT", "errorstat_BUSYGROUP"}


async def test_streams_of_several_slots_are_not_read_at_once(cluster_store: Store) -> None:
    drivers = await several_desks(cluster_store, 4)
    streams = await cluster_store.streams([driver.partition for driver in drivers])
    assert cluster_store.server.same_slot_only

    with pytest.raises(RuntimeError, match="each partition must be read by itself"):
        await cluster_store.server.call(
            "XREADGROUP", "GROUP", "workers", "w1", "STREAMS", *streams, *(">" for _ in streams)
        )


async def test_every_primary_can_be_asked_by_itself(cluster: Cluster, whole: Server) -> None:
    primaries = await whole.primaries()

    assert {node.address.endpoint[1] for node in primaries} == {node.port for node in cluster.primaries()}
    for node in primaries:
        assert b"role:master" in await node.call("INFO")
    for command in (["TIME"], ["PING"], ["CONFIG", "GET", "maxmemory"], ["SCRIPT", "EXISTS", "0" * 40]):
        await whole.call(*command)


async def test_one_seed_that_is_away_does_no_harm(cluster: Cluster) -> None:
    server = open_server(f"redis+cluster://:{PASSWORD}@127.0.0.1:1,{cluster.nodes[4].place}")

    await server.call("SET", "name", "1")

    assert await server.call("GET", "name") == b"1"
    await server.close()


async def test_a_cluster_that_is_not_there_is_said_in_one_line() -> None:
    server = open_server(f"redis+cluster://:{PASSWORD}@127.0.0.1:1,127.0.0.1:2")

    with pytest.raises(
        ServerAway, match=r"^127.0.0.1:\d of redis\+cluster://\*\*\*@127.*: cannot be reached: .*$"
    ):
        await server.call("GET", "name")
    await server.close()


async def test_a_wrong_password_is_said_in_one_line(cluster: Cluster) -> None:
    server = open_server(cluster.url.replace(PASSWORD, "wrong"))

    with pytest.raises(ServerRefused, match=r"redis\+cluster://\*\*\*@.*refused the user or password"):
        await server.call("GET", "name")
    await server.close()


async def test_one_server_is_not_taken_for_a_cluster(tmp_path: Path) -> None:
    single = Node(tmp_path / "single", COMMON)
    single.start()
    try:
        await asyncio.to_thread(wait_for, single.answers)
        server = open_server(f"redis+cluster://:{PASSWORD}@{single.place}")
        with pytest.raises(ServerRefused, match="cluster support disabled; is it a cluster"):
            await server.call("GET", "name")
        await server.close()
    finally:
        single.kill()


async def test_a_node_that_redis_names_is_used_as_its_cluster(cluster: Cluster) -> None:
    node = open_server(f"redis://:{PASSWORD}@{cluster.replicas()[0].place}")

    for number in range(50):
        await node.call("SET", f"name:{number}", number)
    assert len(await node.primaries()) == 3 and node.same_slot_only
    await node.close()

    assert await node.call("GET", "name:7") == b"7"
    await node.close()


async def test_a_closed_cluster_can_be_used_again(cluster: Cluster, whole: Server) -> None:
    await whole.call("SET", "name", "1")
    await whole.close()

    assert await whole.call("GET", "name") == b"1"


async def test_an_error_that_is_none_of_the_clusters_stays_what_it_is(whole: Server) -> None:
    await whole.call("SET", "name", "1")

    with pytest.raises(ErrorReply) as caught:
        await whole.call("XGROUP", "CREATE", "name", "workers", "0")
    assert caught.value.code == "WRONGTYPE"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis+cluster://", "it names no host; use redis+cluster://HOST:PORT,HOST:PORT"),
        ("redis+cluster://a:1,", "it names no host"),
        ("redis+cluster://a:1,b:x", "the port must be a number"),
        ("redis+cluster://a:1,b:0", "the port must be a number"),
        ("redis+cluster://a:1/3", "a cluster has only database 0"),
        ("redis+clusters://a:1", 'unknown scheme "redis+clusters"; use one of redis://'),
        ("http+cluster://a:1", 'unknown scheme "http+cluster"'),
        ("redis+://a:1", 'unknown scheme "redis+"'),
        ("redis://a:1,b:2", "it names several hosts; use redis+cluster://"),
        ("redis+cluster://[::1:7000", "it is not a URL"),
    ],
)
def test_a_wrong_address_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_address_says() -> None:
    address = Address.parse("rediss+cluster://me:s%2Fcret@one,[::1]:7001?ssl_ca_certs=/ca.pem")

    assert [seed.endpoint for seed in address.seeds] == [("one", 6379), ("::1", 7001)]
    assert address.seeds[1].kwargs["password"] == "s/cret"
    assert address.seeds[1].tls == TlsSettings(ca="/ca.pem")
    assert address.seeds[1].shown == "[::1]:7001 of rediss+cluster://***@one,[::1]:7001?ssl_ca_certs=/ca.pem"
    assert isinstance(open_server("valkey+cluster://one"), ClusterServer)
    with pytest.raises(ConfigError) as caught:
        Address.parse("redis://:pass/word@host:1/0")
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("EVALSHA", "digest", 1, "{a}:", 5), "a"),
        (
            (
                "XREADGROUP",
                "GROUP",
                "g",
                "w",
                "COUNT",
                5,
                "BLOCK",
                9,
                "STREAMS",
                b"{a}:1",
                b"{a}:2",
                ">",
                ">",
            ),
            "a",
        ),
        (("XGROUP", "CREATE", "{a}:s", "g", "0"), "a"),
        (("XINFO", "CONSUMERS", "{a}:s", "g"), "a"),
        (("HSET", "{a}:h", "f", "v"), "a"),
        (("SET", "{a}:h", "v", "EX", 5), "a"),
    ],
)
def test_the_key_of_a_command(command: tuple[Any, ...], key: str) -> None:
    assert slot_of(command) == slot_of(("GET", key))


async def several_desks(store: Store, many: int) -> list[PartitionDriver]:
    first = await PartitionDriver.open(store, partitions=many)
    drivers = [PartitionDriver(store, first.settings) for _ in range(many)]
    for number, driver in enumerate(drivers):
        driver.partition = store.partition(first.settings, number)
    return drivers


@asynccontextmanager
async def producing(driver: PartitionDriver) -> AsyncIterator[list[str]]:
    """One job after the other, from some before the body to some after it."""
    sent: list[str] = []
    stop = asyncio.Event()

    async def produce() -> None:
        while not stop.is_set():
            id = uuid4().hex
            await driver.store.retrying(partial(driver.enqueue, id))
            sent.append(id)

    async def twenty_more() -> None:
        so_far = len(sent)
        await eventually(lambda: _true(len(sent) > so_far + 20))

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        await twenty_more()
        yield sent
        await twenty_more()
        stop.set()


async def goes_through(driver: PartitionDriver, id: str) -> bool:
    try:
        await driver.enqueue(id)
    except ServerAway:
        return False
    return True


async def fail_over(cluster: Cluster, replica: Node) -> None:
    """Make this replica the primary, without loss."""
    replica.tell("CLUSTER", "FAILOVER")
    await asyncio.to_thread(wait_for, lambda: replica.is_primary() and replica in cluster.primaries())


def replica_of(cluster: Cluster, primary: Node) -> Node:
    return next(
        node for node in cluster.replicas() if node.info("replication")["master_port"] == primary.port
    )


def errors_of(*nodes: Node) -> dict[str, Any]:
    return {name: count for node in nodes for name, count in node.info("errorstats").items()}


async def _true(fact: bool) -> bool:
    return fact
