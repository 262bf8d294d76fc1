"""The master that sentinels keep is one server to everybody above it, whichever server that is."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from partition_driver import PartitionDriver, ids_of

from conftest import eventually, every_fault
from qbull.errors import ConfigError, ServerAway, ServerError, ServerRefused
from qbull.store.connection import server
from qbull.store.connection.sentinel import SentinelServer
from qbull.store.connection.server import Address, Server, open_server
from qbull.store.store import Store
from topology import PASSWORD, Node, Trio, raised_trio, wait_for

pytestmark = [pytest.mark.xdist_group("sentinel"), pytest.mark.timeout(60)]


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with raised_trio(tmp_path) as trio:
        yield trio


@pytest.fixture
async def kept(trio: Trio) -> AsyncIterator[Server]:
    """The server that the sentinels keep."""
    server = open_server(trio.url)
    yield server
    await server.close()
    left = [task for task in asyncio.all_tasks() if "_watch" in repr(task)]
    assert left == [], "a task was left running"


@pytest.fixture
async def kept_store(trio: Trio, kept: Server) -> AsyncIterator[Store]:
    store = Store(trio.url, "test")
    store.server = kept
    store = store.without_retry
    await store.open()
    yield store
    assert await every_fault(store) == []


async def test_a_killed_master_is_away_until_a_replica_has_taken_over(
    trio: Trio, kept_store: Store, record_property: Any
) -> None:
    driver = await PartitionDriver.open(kept_store)
    await driver.enqueue("before")
    old = trio.master()
    await asyncio.to_thread(old.wait_for_replicas)

    old.kill()
    killed = time.monotonic()
    with pytest.raises(ServerAway):
        await driver.enqueue("meanwhile")
    await eventually(lambda: goes_through(driver, "meanwhile"))
    record_property("failover_s", time.monotonic() - killed)

    assert not old.runs
    assert await driver.enqueue("before", "meanwhile", "after") == {0, 1}
    assert [id for delivery in await driver.fetch() for id in ids_of(delivery)] == [
        "before",
        "meanwhile",
        "after",
    ]


async def test_a_planned_failover_doubles_nothing(trio: Trio, kept_store: Store) -> None:
    driver = await PartitionDriver.open(kept_store)
    await driver.enqueue("before")
    old = trio.master()
    await asyncio.to_thread(old.wait_for_replicas)

    await asyncio.to_thread(wait_for, trio.fails_over)
    await asyncio.to_thread(wait_for, lambda: trio.master() is not old and not old.is_primary())
    await eventually(lambda: goes_through(driver, "after"))

    assert await driver.enqueue("before", "after") == {0, 1}
    assert [id for delivery in await driver.fetch() for id in ids_of(delivery)] == ["before", "after"]


async def test_a_master_that_is_frozen_is_left_as_soon_as_the_sentinels_say_so(
    trio: Trio, kept_store: Store
) -> None:
    driver = await PartitionDriver.open(kept_store)
    await driver.enqueue("before")
    old = trio.master()
    await asyncio.to_thread(old.wait_for_replicas)
    await eventually(lambda: _true(any(watched(sentinel) for sentinel in trio.sentinels)))

    old.kill(signal.SIGSTOP)
    await asyncio.to_thread(wait_for, lambda: trio.master() is not old)
    await eventually(lambda: _true(not idle_at(kept_store.server, old)))
    began = time.monotonic()
    await driver.enqueue("after")

    assert time.monotonic() - began < server.CALL_TIMEOUT_SECONDS / 2, "it was sent to the frozen one first"
    assert await driver.enqueue("before", "after") == {0, 1}


async def test_listening_goes_on_at_the_new_master(trio: Trio, kept: Server) -> None:
    messages = kept.listen("news")
    assert await anext(messages) == ("", b"")
    old = trio.master()

    await asyncio.to_thread(wait_for, trio.fails_over)
    with pytest.raises(ServerAway):
        await anext(messages)
    await asyncio.to_thread(wait_for, lambda: trio.master() is not old and trio.master().is_primary())
    messages = await eventually(lambda: listens(kept, "news"))
    # A sentinel that has not heard yet names the old master, which passes messages on once it has synchronised.
    heard = asyncio.create_task(anext(messages))
    await eventually(lambda: is_heard(trio, heard))

    assert await heard == ("news", b"more")
    await messages.aclose()


async def is_heard(trio: Trio, heard: asyncio.Task[tuple[str, bytes]]) -> bool:
    trio.master().tell("PUBLISH", "news", "more")
    await asyncio.wait([heard], timeout=0.5)
    return heard.done()


async def test_a_master_goes_on_without_its_sentinels(trio: Trio, kept: Server) -> None:
    await kept.call("SET", "name", "1")

    for sentinel in trio.sentinels:
        sentinel.kill()

    assert await kept.call("GET", "name") == b"1"
    trio.servers[0].tell("CLIENT", "KILL", "TYPE", "normal")
    await eventually(lambda: answers(kept, "GET", "name"))
    assert await kept.call("GET", "name") == b"1"


async def test_one_sentinel_is_enough_to_find_the_master(trio: Trio) -> None:
    for sentinel in trio.sentinels[:2]:
        sentinel.kill()
    server = open_server(trio.url)

    assert await server.call("SET", "name", "1") == b"OK"
    await server.close()


async def test_a_server_that_is_no_master_is_not_written_to(trio: Trio, kept: Server) -> None:
    """A sentinel that has not heard yet names a server that was demoted."""
    await kept.call("SET", "name", "1")
    for sentinel in trio.sentinels:
        sentinel.kill()

    trio.servers[0].tell("REPLICAOF", "127.0.0.1", trio.servers[1].port)
    with pytest.raises(ServerAway):
        await kept.call("SET", "name", "2")
    with pytest.raises(
        ServerAway, match=r"127\.0\.0\.1:\d+ of redis\+sentinel://.*: it is not the master any more"
    ):
        await kept.call("GET", "name")


async def test_sentinels_that_are_not_there_are_said_in_one_line() -> None:
    server = open_server(f"redis+sentinel://:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/jobs")

    with pytest.raises(
        ServerAway,
        match=r"^redis\+sentinel://\*\*\*@127.0.0.1:1,127.0.0.1:2/jobs: none of its sentinels can be reached; .*$",
    ):
        await server.call("GET", "name")
    await server.close()


async def test_a_name_and_a_password_that_are_wrong_are_said_in_one_line(trio: Trio) -> None:
    wrong = {
        trio.url.replace("/jobs/", "/others/"): 'check the master.s name in the URL, "others"',
        trio.url.replace(PASSWORD, "wrong"): "refused the user or password",
    }

    for url, complaint in wrong.items():
        server = open_server(url)
        with pytest.raises(ServerRefused, match=complaint):
            await server.call("GET", "name")
        await server.close()


async def test_sentinels_may_have_a_password_of_their_own(trio: Trio) -> None:
    for sentinel in trio.sentinels:
        sentinel.tell("ACL", "SETUSER", "default", "resetpass", ">other")
        sentinel.password = "other"
    locked, right = open_server(trio.url), open_server(trio.url + "?sentinel_password=other")

    with pytest.raises(ServerRefused, match="refused the user or password") as caught:
        await locked.call("GET", "name")
    assert PASSWORD not in str(caught.value)
    assert await right.call("GET", "name") is None
    assert "other" not in right.address.shown
    await locked.close()
    await right.close()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis+sentinel://a:1", "it names no master; use redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB"),
        ("redis+sentinel:///jobs", "it names no host"),
        ("redis+sentinel://a:1,b:70000/jobs", "the port must be a number"),
        ("redis+sentinel://a:1/jobs/x", 'the database must be a number, not "x"'),
        ("sentinel://a:1/jobs", 'unknown scheme "sentinel"'),
    ],
)
def test_a_wrong_address_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_address_says() -> None:
    address = Address.parse("redis+sentinel://me:s%2Fcret@one,two:5000/my%20jobs/3?sentinel_password=hush")

    assert [seed.endpoint for seed in address.seeds] == [("one", 26379), ("two", 5000)]
    assert address.master == "my jobs"
    assert (address.kwargs["username"], address.kwargs["password"], address.kwargs["db"]) == (
        "me",
        "s/cret",
        3,
    )
    assert (address.seeds[0].kwargs["username"], address.seeds[0].kwargs["password"]) == (None, "hush")
    assert "cret" not in address.shown and "hush" not in address.shown
    assert isinstance(open_server("valkey+sentinel://one/jobs"), SentinelServer)


async def goes_through(driver: PartitionDriver, id: str) -> bool:
    try:
        await driver.enqueue(id)
    except ServerAway:
        return False
    return True


async def answers(server: Server, *command: str) -> bool:
    try:
        await server.call(*command)
    except ServerError:
        return False
    return True


async def listens(server: Server, channel: str) -> Any:
    messages = server.listen(channel)
    try:
        await anext(messages)
    except ServerAway:
        return None
    return messages


def watched(sentinel: Node) -> bool:
    return b"sub=1" in sentinel.tell("CLIENT", "LIST", "TYPE", "pubsub")


def idle_at(server: Server, node: Node) -> bool:
    return any(connection.port == node.port for connection in server._idle)  # type: ignore[attr-defined]


async def _true(fact: bool) -> bool:
    return fact
