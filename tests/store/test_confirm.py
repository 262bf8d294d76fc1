"""An enqueue with a durability profile is answered when its job is as safe as that says, and not before."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from partition_driver import PartitionDriver

from conftest import eventually, every_fault
from proxy import Proxy
from qbull.core.durability import Durability, ReplicationFacts
from qbull.embedded.server import EmbeddedServer
from qbull.errors import NotConfirmed, ServerAway, ServerRefused
from qbull.store import confirm
from qbull.store.connection import server
from qbull.store.connection.server import Conversation, open_server
from qbull.store.store import Store
from topology import PASSWORD, Pair, raised_pair, wait_for

pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.timeout(60)]

WAITING: list[Durability] = ["replicated", "strict"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with raised_pair(tmp_path) as pair:
        yield pair


@pytest.fixture
async def driver(pair: Pair) -> AsyncIterator[PartitionDriver]:
    store = Store(pair.url, "test").without_retry
    yield await PartitionDriver.open(store)
    faults = await every_fault(store)
    await store.close()
    assert faults == []


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits ten seconds for what does not come."""
    monkeypatch.setattr(confirm, "CONFIRM_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(confirm, "WAIT_SLICE_SECONDS", 0.1)


async def enqueue(driver: PartitionDriver, durability: Durability, *ids: str) -> set[int]:
    return await driver.partition.enqueue([driver.job(id) for id in ids], driver.store.confirmed(durability))


@contextmanager
def frozen(*nodes: Any) -> Iterator[None]:
    for node in nodes:
        node.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            node.kill(signal.SIGCONT)


@pytest.mark.parametrize("durability", WAITING)
async def test_a_confirmed_job_is_on_the_replica(
    pair: Pair, driver: PartitionDriver, durability: Durability
) -> None:
    assert await enqueue(driver, durability, "a", "b") == set()

    assert sorted(pair.replicas[0].tell("HKEYS", driver.partition.base + "index")) == [b"a", b"b"]


@pytest.mark.parametrize("durability", WAITING)
async def test_a_frozen_replica_confirms_nothing_until_it_goes_on(
    pair: Pair, driver: PartitionDriver, durability: Durability, hurried: None
) -> None:
    await enqueue(driver, durability, "before")

    with frozen(*pair.replicas):
        with pytest.raises(NotConfirmed, match="0 of 1 replicas have it after"):
            await enqueue(driver, durability, "a")
        assert pair.primary.tell("HEXISTS", driver.partition.base + "index", "a") == 1
    await eventually(lambda: is_confirmed(driver, durability, "a"))

    assert await enqueue(driver, durability, "a") == {0}


@pytest.mark.parametrize("durability", WAITING)
async def test_a_job_that_was_there_already_is_not_taken_for_confirmed(
    pair: Pair, driver: PartitionDriver, durability: Durability, hurried: None
) -> None:
    """A connection that has written nothing is told at once that all replicas have its nothing."""
    await enqueue(driver, durability, "before")
    other = Store(pair.url, "test").without_retry

    with frozen(*pair.replicas):
        await PartitionDriver(other, driver.settings).enqueue("a")
        with pytest.raises(NotConfirmed):
            await enqueue(driver, durability, "a")
    await other.close()


@pytest.mark.parametrize("durability", WAITING)
async def test_a_new_connection_has_its_own_write_confirmed(
    pair: Pair, driver: PartitionDriver, durability: Durability, hurried: None
) -> None:
    await enqueue(driver, durability, "before")
    links = driver.store.confirmed(durability)._checks

    with frozen(*pair.replicas):
        with pytest.raises(NotConfirmed):
            await enqueue(driver, durability, "a")
        for _ in range(3):  # each failure closes its connection
            with pytest.raises(NotConfirmed):
                await enqueue(driver, durability, "a")
    assert len(links) == 1


@pytest.mark.parametrize("durability", WAITING)
async def test_a_primary_that_freezes_while_it_is_waited_for_is_away(
    pair: Pair, driver: PartitionDriver, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueue(driver, durability, "before")
    pair.primary.tell("CONFIG", "RESETSTAT")
    monkeypatch.setattr(server, "CALL_TIMEOUT_SECONDS", 1.0)

    with frozen(*pair.replicas):
        waiting = asyncio.create_task(enqueue(driver, durability, "a"))
        await eventually(lambda: asks_replicas(pair))
        with frozen(pair.primary), pytest.raises(ServerAway, match="cannot be reached: no answer"):
            await waiting


async def asks_replicas(pair: Pair) -> bool:
    return not {"cmdstat_wait", "cmdstat_waitaof"}.isdisjoint(
        await asyncio.to_thread(pair.primary.info, "commandstats")
    )


async def test_a_replica_that_dies_meanwhile_is_waited_for_in_vain(
    pair: Pair, driver: PartitionDriver, hurried: None
) -> None:
    await enqueue(driver, "replicated", "before")

    pair.replicas[0].kill()
    wait_for(lambda: not pair.is_whole())
    with pytest.raises(NotConfirmed, match=r"0 of 1 replica follow it after"):
        await enqueue(driver, "replicated", "a")
    with pytest.raises(
        ServerAway, match=r'durability "replicated" does not hold here: 0 of 1 replica follow it'
    ):
        await enqueue(driver, "replicated", "b")

    assert await driver.enqueue("a", "b") == {0}, "what is refused is not written"


async def test_a_replica_that_has_come_back_confirms_again(
    pair: Pair, driver: PartitionDriver, hurried: None
) -> None:
    await enqueue(driver, "strict", "before")
    pair.replicas[0].kill()
    wait_for(lambda: not pair.is_whole())
    with pytest.raises(NotConfirmed):
        await enqueue(driver, "strict", "a")

    pair.replicas[0].start()
    pair.replicas[0].tell_when_up("REPLICAOF", "127.0.0.1", pair.primary.port)
    await driver.store.retrying(partial(enqueue, driver, "strict", "a", "b"))

    assert sorted(pair.replicas[0].tell("HKEYS", driver.partition.base + "index")) == [b"a", b"b", b"before"]


async def test_a_replica_that_has_joined_is_waited_for_too(
    pair: Pair, driver: PartitionDriver, tmp_path: Path, hurried: None
) -> None:
    await enqueue(driver, "replicated", "before")
    with raised_pair(tmp_path / "more", replicas=0) as other:
        joined = other.primary
        joined.tell("REPLICAOF", "127.0.0.1", pair.primary.port)
        await asyncio.to_thread(wait_for, lambda: pair.is_linked(joined))

        await enqueue(driver, "replicated", "a")
        with frozen(joined), pytest.raises(NotConfirmed, match="1 of 2 replicas have it"):
            await enqueue(driver, "replicated", "b")


async def test_a_tool_that_reads_like_a_replica_does_not_confirm(
    pair: Pair, driver: PartitionDriver, hurried: None
) -> None:
    await enqueue(driver, "replicated", "before")
    pair.replicas[0].kill()
    wait_for(lambda: not pair.is_whole())

    with imposter(pair.primary.port):
        await asyncio.to_thread(wait_for, lambda: pair.primary.info("replication")["connected_slaves"] == 1)
        await asyncio.to_thread(wait_for, lambda: pair.primary.tell("WAIT", 1, 100) == 1)
        with pytest.raises(
            NotConfirmed, match=r"0 of 1 replica follow it: 127\.0\.0\.1:1: cannot be reached"
        ):
            await enqueue(driver, "replicated", "a")


async def test_callers_that_wait_for_one_check_share_its_result(
    pair: Pair, driver: PartitionDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbull.store.connection.facts.REPLICA_ASK_TIMEOUT_SECONDS", 0.2)
    checks = 0
    look = confirm.facts_of

    async def counted(talk: Conversation, *, replicas: bool) -> ReplicationFacts:
        nonlocal checks
        checks += 1
        return await look(talk, replicas=replicas)

    monkeypatch.setattr(confirm, "facts_of", counted)
    confirmed = driver.store.confirmed("replicated")
    with frozen(*pair.replicas):
        calls = [confirmed.confirm(driver.partition.base) for _ in range(10)]
        answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [str(answer).partition("here: ")[2][:24] for answer in answers] == [
        "0 of 1 replica follow it"
    ] * 10
    assert checks <= 2


async def test_a_replica_that_is_down_is_an_outage_for_a_process_that_has_just_started(
    pair: Pair, driver: PartitionDriver, hurried: None
) -> None:
    pair.replicas[0].kill()
    wait_for(lambda: not pair.is_whole())

    with imposter(pair.primary.port):
        await asyncio.to_thread(wait_for, lambda: pair.primary.info("replication")["connected_slaves"] == 1)
        with pytest.raises(ServerAway, match=r"0 of 1 replica follow it: 127\.0\.0\.1:1: cannot be reached"):
            await enqueue(driver, "replicated", "a")


@pytest.mark.parametrize(
    ("durability", "settings", "complaint"),
    [
        (
            "fast",
            {"appendonly": "no"},
            'no append-only file: a restart loses jobs; run "CONFIG SET appendonly yes"',
        ),
        ("fast", {"appendfsync": "no"}, "appendfsync no"),
        (
            "durable",
            {"appendfsync": "everysec"},
            'appendfsync everysec: .*; run "CONFIG SET appendfsync always"',
        ),
        ("durable", {"no-appendfsync-on-rewrite": "yes"}, "while the file is rewritten nothing is flushed"),
        ("replicated", {"appendfsync": "everysec"}, "appendfsync everysec"),
        ("strict", {"appendfsync": "everysec"}, "appendfsync everysec"),
    ],
)
async def test_a_server_that_cannot_hold_a_profile_is_refused_before_anything_is_written(
    pair: Pair, driver: PartitionDriver, durability: Durability, settings: dict[str, str], complaint: str
) -> None:
    for setting, value in settings.items():
        pair.primary.tell("CONFIG", "SET", setting, value)

    with pytest.raises(
        ServerRefused,
        match=f'^redis://.*: durability "{durability}" does not hold here: it has .*{complaint}',
    ) as refused:
        await enqueue(driver, durability, "a")

    assert "\n" not in str(refused.value)
    assert await driver.enqueue("a") == set()


async def test_fast_needs_only_the_append_only_file(pair: Pair, driver: PartitionDriver) -> None:
    pair.primary.tell("CONFIG", "SET", "appendfsync", "everysec")

    assert await enqueue(driver, "fast", "a") == set()
    assert "cmdstat_wait" not in pair.primary.info("commandstats")


async def test_strict_asks_each_replica_for_its_settings(pair: Pair, driver: PartitionDriver) -> None:
    """WAITAOF answers for a replica with everysec too, and not the truth."""
    pair.replicas[0].tell("CONFIG", "SET", "appendfsync", "everysec")

    assert await enqueue(driver, "replicated", "a") == set()
    with pytest.raises(
        ServerRefused, match=rf"its replica {pair.replicas[0].place} has appendfsync everysec"
    ):
        await enqueue(driver, "strict", "a")


async def test_how_many_replicas_there_should_be_is_never_guessed(pair: Pair) -> None:
    wrong = {
        pair.url.partition("?")[
            0
        ]: r"nothing says how many replicas it should have; 1 connected now; add \?replicas=N",
        pair.url.replace("replicas=1", "replicas=2"): "1 of 2 replicas follow it",
    }

    for url, complaint in wrong.items():
        store = Store(url, "test")
        with pytest.raises(ServerRefused, match=complaint):
            await enqueue(await PartitionDriver.open(store), "replicated", "a")
        await store.close()


async def test_a_setting_that_is_changed_later_is_noticed(
    pair: Pair, driver: PartitionDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueue(driver, "durable", "a")
    pair.primary.tell("CONFIG", "SET", "appendfsync", "everysec")

    monkeypatch.setattr(confirm, "PROFILE_CHECK_TTL_SECONDS", -1.0)  # a minute has passed

    with pytest.raises(ServerRefused, match="appendfsync everysec"):
        await enqueue(driver, "durable", "b")


async def test_a_server_that_was_started_anew_is_looked_at_anew(pair: Pair, driver: PartitionDriver) -> None:
    await enqueue(driver, "durable", "a")

    pair.primary.kill()
    pair.primary.settings = pair.primary.settings.replace("appendfsync always", "appendfsync everysec")
    (pair.primary.directory / "server.conf").unlink()
    pair.primary.start()

    with pytest.raises(ServerRefused, match="appendfsync everysec"):
        await driver.store.retrying(partial(enqueue, driver, "durable", "b"))


@pytest.mark.parametrize("command", [("WAIT", 1, 1), ("WAITAOF", 1, 1, 1)])
async def test_a_primary_that_became_a_replica_meanwhile_is_away_not_refused(
    pair: Pair, command: tuple[str | int, ...]
) -> None:
    server = open_server(f"redis://:{PASSWORD}@{pair.replicas[0].place}")

    with pytest.raises(ServerAway, match="cannot be used with replica"):
        await server.call(*command)
    await server.close()


async def test_a_server_that_has_forgotten_the_script_gets_it_again(
    pair: Pair, driver: PartitionDriver
) -> None:
    await enqueue(driver, "strict", "a")

    pair.primary.tell("SCRIPT", "FLUSH")

    assert await enqueue(driver, "strict", "a", "b") == {0}


async def test_settings_that_this_user_may_not_read_are_no_proof(pair: Pair) -> None:
    pair.primary.tell("ACL", "SETUSER", "shy", "on", ">word", "~*", "&*", "+@all", "-config")
    store = Store(pair.url.replace(f":{PASSWORD}@", "shy:word@"), "test")
    driver = await PartitionDriver.open(store)

    assert await enqueue(driver, "fast", "a") == set()
    with pytest.raises(
        ServerRefused, match=r"settings that this user may not read; give the user the right \+config\|get"
    ):
        await enqueue(driver, "durable", "b")
    await store.close()


async def test_a_lost_reply_doubles_nothing(server: EmbeddedServer, store: Store) -> None:
    async with Proxy(server.socket).running() as proxy:
        far = Store(f"redis://:{server.password}@127.0.0.1:{proxy.port}/0", "test").without_retry
        driver = await PartitionDriver.open(far)
        await enqueue(driver, "durable", "before")

        proxy.mood = "loses replies"
        with pytest.raises(ServerAway):
            await enqueue(driver, "durable", "a")
        proxy.mood = "fair"

        assert await enqueue(driver, "durable", "a", "b") == {0}
        await far.close()
    assert proxy.lost == 1


async def is_confirmed(driver: PartitionDriver, durability: Durability, id: str) -> bool:
    try:
        await enqueue(driver, durability, id)
    except (NotConfirmed, ServerAway):
        return False
    return True


@contextmanager
def imposter(port: int) -> Iterator[None]:
    """Something that follows a primary's stream and acknowledges whatever comes, as tools for migrations do."""
    with socket.create_connection(("127.0.0.1", port)) as tool:
        answers = tool.makefile("rb")
        for command in (
            f"AUTH {PASSWORD}",
            "REPLCONF listening-port 1",
            "REPLCONF capa eof capa psync2",
            "PSYNC ? -1",
        ):
            tool.sendall(f"{command}\r\n".encode())
            answers.readline()
        kind = answers.readline()
        while kind == b"\n":
            kind = answers.readline()
        assert kind.startswith(b"$EOF:")
        end, tail = kind[5:].strip(), b""
        while not tail.endswith(end):
            tail = (tail + answers.read(1))[-40:]
        tool.sendall(b"REPLCONF ACK 1000000000\r\n")
        yield


@pytest.mark.parametrize("durability", WAITING)
async def test_what_a_full_server_takes_is_confirmed(
    pair: Pair, driver: PartitionDriver, durability: Durability
) -> None:
    """The ends of flows are: were these refused, no flow would end and make room."""
    await enqueue(driver, durability, "a")
    pair.primary.tell("CONFIG", "SET", "maxmemory", "1")

    assert await driver.store.confirmed(durability).script("consumer_groups", driver.partition.base, "3") == 1

    assert pair.replicas[0].tell("EXISTS", driver.partition.base + "ready:3") == 1
