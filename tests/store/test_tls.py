"""TLS: certificates are verified unless the address says no, and a failure is one line that says what to do."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from conftest import eventually
from qbull.errors import ConfigError, ServerAway, ServerError, ServerRefused
from qbull.store.connection import server as server_module
from qbull.store.connection.address import Address
from qbull.store.connection.server import Server, open_server
from qbull.store.connection.tls import TlsSettings
from relay import Relay, relaying, server_context
from topology import COMMON, PASSWORD, QUICK, Node, raised_cluster, raised_trio, wait_for

pytestmark = [pytest.mark.xdist_group("tls"), pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("tls") / "server", COMMON)
    node.start()
    try:
        wait_for(node.answers)
        yield node
    finally:
        node.kill()


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> Path:
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


@pytest.fixture
def relay(node: Node, ca: trustme.CA) -> Iterator[Relay]:
    with relaying(node.port, server_context(ca)) as relay:
        yield relay


@asynccontextmanager
async def opened(place: str, **parameters: Any) -> AsyncIterator[Server]:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    server = open_server(f"rediss://:{PASSWORD}@{place}/0?{query}")
    yield server
    await server.close()


async def refusal(place: str, **parameters: Any) -> str:
    """The one line with which a connection is refused."""
    async with opened(place, **parameters) as server:
        with pytest.raises(ServerError) as refused:
            await server.call("PING")
    said = str(refused.value)
    assert "\n" not in said and PASSWORD not in said
    assert isinstance(refused.value, ServerRefused), said
    return said.partition(": ")[2]


async def test_commands_scripts_and_messages_go_over_tls(relay: Relay, ca_file: Path) -> None:
    async with opened(relay.place, ssl_ca_certs=ca_file) as server:
        await server.call("SET", "name", b"\x00" * 1_000_000)
        messages = server.listen("news")
        await anext(messages)
        await server.call("PUBLISH", "news", "1")

        assert await anext(messages) == ("news", b"1")
        assert len(await server.call("GET", "name")) == 1_000_000
        assert await server.script("count", "{tls:q:0}:")
        await messages.aclose()
    assert relay.secured >= 2


async def test_a_certificate_of_an_unknown_ca_is_refused(relay: Relay) -> None:
    said = await refusal(relay.place)

    assert said.startswith(
        "its certificate is not trusted: unable to get local issuer certificate; name the CA"
    )
    assert "?ssl_ca_certs=FILE" in said


async def test_a_named_ca_is_the_only_one_that_is_trusted(relay: Relay, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")

    assert "is not trusted" in await refusal(relay.place, ssl_ca_certs=tmp_path / "other.pem")


async def test_a_certificate_of_somebody_else_is_refused(node: Node, ca: trustme.CA, ca_file: Path) -> None:
    with relaying(node.port, server_context(ca, "elsewhere.test")) as relay:
        said = await refusal(relay.place, ssl_ca_certs=ca_file)
        async with opened(relay.place, ssl_ca_certs=ca_file, ssl_check_hostname="false") as server:
            assert await server.call("PING") == b"PONG"

    assert "IP address mismatch, certificate is not valid for '127.0.0.1'; use a name" in said


async def test_a_certificate_that_has_expired_is_refused(node: Node, ca: trustme.CA, ca_file: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    ca.issue_cert(
        "127.0.0.1", not_before=yesterday - datetime.timedelta(days=1), not_after=yesterday
    ).configure_cert(context)

    with relaying(node.port, context) as relay:
        assert "certificate has expired; renew it" in await refusal(relay.place, ssl_ca_certs=ca_file)


async def test_verification_can_be_given_up_only_by_saying_so(relay: Relay) -> None:
    async with opened(relay.place, ssl_cert_reqs="none") as server:
        assert await server.call("PING") == b"PONG"


async def test_plain_text_on_a_port_with_tls_is_told_what_to_use(relay: Relay) -> None:
    server = open_server(f"redis://:{PASSWORD}@{relay.place}")

    with pytest.raises(ServerAway, match=r"; if this port speaks TLS, use rediss://$"):
        await server.call("PING")
    await server.close()


async def test_an_alert_in_answer_to_plain_text_is_understood() -> None:
    """A server that says with an alert that it did not understand."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x28")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    server = open_server(f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    with pytest.raises(ServerAway, match=r"; if this port speaks TLS, use rediss://$"):
        await server.call("PING")
    await server.close()
    listener.close()


async def test_tls_on_a_port_with_plain_text_is_told_what_to_use(
    node: Node, ca_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for the end of a line that will never come."""
    monkeypatch.setattr(server_module, "SERVER_CONNECT_TIMEOUT_SECONDS", 0.5)

    async with opened(node.place, ssl_ca_certs=ca_file) as server:
        with pytest.raises(ServerAway, match=r"no answer; if this port speaks plain text, use redis://$"):
            await server.call("PING")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_may_ask_for_our_certificate(
    node: Node, ca: trustme.CA, ca_file: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ours, stranger = tmp_path / "ours.pem", tmp_path / "stranger.pem"
    issued = ca.issue_cert("producer")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(ours)
    trustme.CA().issue_cert("producer").private_key_and_cert_chain_pem.write_to_path(stranger)
    context = server_context(ca)
    context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)

    with relaying(node.port, context) as relay:
        async with opened(
            relay.place, ssl_ca_certs=ca_file, ssl_certfile=ours, ssl_keyfile=tmp_path / "key.pem"
        ) as server:
            assert await server.call("PING") == b"PONG"
        for certificate in ({}, {"ssl_certfile": stranger}):
            async with opened(relay.place, ssl_ca_certs=ca_file, **certificate) as server:
                # With TLS 1.3 the server's alert may be lost in its hanging up.
                with pytest.raises(ServerError, match=r"ssl_certfile|reset by peer|Connection closed"):
                    await server.call("PING")


async def test_files_that_cannot_be_used_are_named(relay: Relay, ca_file: Path, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")

    assert f"{tmp_path / 'gone.pem'} cannot be read: No such file" in await refusal(
        relay.place, ssl_ca_certs=tmp_path / "gone.pem"
    )
    assert f"{garbage} cannot be used: " in await refusal(relay.place, ssl_ca_certs=garbage)
    assert f"{garbage} cannot be used: " in await refusal(
        relay.place, ssl_ca_certs=ca_file, ssl_certfile=garbage
    )


async def test_a_renewed_file_is_used_for_the_next_connection(
    relay: Relay, ca: trustme.CA, tmp_path: Path
) -> None:
    file = tmp_path / "trusted.pem"
    trustme.CA().cert_pem.write_to_path(file)
    async with opened(relay.place, ssl_ca_certs=file) as server:
        with pytest.raises(ServerRefused):
            await server.call("PING")

        ca.cert_pem.write_to_path(file)

        assert await server.call("PING") == b"PONG"


async def test_a_server_that_dies_in_the_handshake_is_away_not_refused(relay: Relay, ca_file: Path) -> None:
    async with opened(relay.place, ssl_ca_certs=ca_file) as server:
        assert await server.call("PING") == b"PONG"

        relay.close()

        with pytest.raises(ServerAway):
            await server.call("PING")


async def test_a_master_that_sentinels_keep_has_tls_before_and_after_a_failover(
    ca: trustme.CA, ca_file: Path, tmp_path: Path
) -> None:
    with raised_trio(tmp_path) as trio, ExitStack() as stack:
        context = server_context(ca)
        relays = {
            node.port: stack.enter_context(relaying(node.port, context, plain_too=True))
            for node in (*trio.servers, *trio.sentinels)
        }
        for node in trio.servers:
            node.tell("CONFIG", "SET", "replica-announce-port", relays[node.port].port)
        for node in trio.servers[1:]:  # who they are is said when they come
            node.tell("REPLICAOF", "NO", "ONE")
            node.tell("REPLICAOF", "127.0.0.1", relays[trio.servers[0].port].port)
        for sentinel in trio.sentinels:
            _watch_over(sentinel, relays[trio.servers[0].port].port)
        await asyncio.to_thread(wait_for, trio.is_whole)
        seeds = ",".join(relays[sentinel.port].place for sentinel in trio.sentinels)
        server = open_server(f"rediss+sentinel://:{PASSWORD}@{seeds}/jobs/0?ssl_ca_certs={ca_file}")

        await server.call("SET", "name", "1")
        await asyncio.to_thread(trio.servers[0].wait_for_replicas)
        trio.servers[0].kill()
        await eventually(lambda: answers(server, "SET", "name", "2"))

        assert await server.call("GET", "name") == b"2"
        assert sum(relays[node.port].secured for node in trio.servers[1:]) > 0
        await server.close()


def _watch_over(sentinel: Node, port: int) -> None:
    sentinel.tell("SENTINEL", "REMOVE", "jobs")
    sentinel.tell("SENTINEL", "MONITOR", "jobs", "127.0.0.1", port, 2)
    for setting, value in (
        ("auth-pass", PASSWORD),
        ("down-after-milliseconds", 700),
        ("failover-timeout", 1000),
    ):
        sentinel.tell("SENTINEL", "SET", "jobs", setting, value)
    sentinel.tell("SENTINEL", "DEBUG", *QUICK)


async def test_every_node_of_a_cluster_has_tls(ca: trustme.CA, ca_file: Path, tmp_path: Path) -> None:
    with raised_cluster(tmp_path) as cluster, ExitStack() as stack:
        context = server_context(ca)
        relays = {
            node.port: stack.enter_context(relaying(node.port, context, plain_too=True))
            for node in cluster.nodes
        }
        places = {relay.port for relay in relays.values()}
        for node in cluster.nodes:
            node.tell("CONFIG", "SET", "cluster-announce-port", relays[node.port].port)
        await asyncio.to_thread(wait_for, lambda: all(_told(node) == places for node in cluster.nodes))
        server = open_server(
            f"rediss+cluster://:{PASSWORD}@{relays[cluster.nodes[0].port].place}?ssl_ca_certs={ca_file}"
        )

        for n in range(50):
            await server.call("SET", f"name{n}", n)
        cluster.nodes[1].kill()
        for n in range(50):
            await eventually(lambda n=n: answers(server, "SET", f"name{n}", n + 1))

        assert [int(await server.call("GET", f"name{n}")) for n in range(50)] == list(range(1, 51))
        assert all(relays[node.port].secured for node in cluster.nodes[:3])
        await server.close()


def _told(node: Node) -> set[int]:
    """The ports that it tells of."""
    lines = node.tell("CLUSTER", "NODES").decode().splitlines()
    return {int(line.split()[1].partition("@")[0].rpartition(":")[2]) for line in lines}


async def answers(server: Server, *command: str | int) -> bool:
    try:
        await server.call(*command)
    except ServerError:
        return False
    return True


def test_what_an_address_says() -> None:
    address = Address.parse(
        "rediss+sentinel://one,two/jobs?ssl_ca_certs=/ca.pem&ssl_certfile=/me.pem&ssl_keyfile=/me.key"
    )
    wanted = TlsSettings(ca="/ca.pem", certificate="/me.pem", key="/me.key")

    assert address.tls == wanted
    assert [seed.tls for seed in address.seeds] == [wanted, wanted]
    assert address.at("three", 1).tls == wanted
    assert Address.parse("valkeys://one").tls == TlsSettings()
    assert Address.parse("rediss://one?ssl_cert_reqs=CERT_NONE").tls == TlsSettings(
        verifies=False, checks_host=False
    )
    assert Address.parse("redis://one").tls is None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (
            "rediss://a?ssl_ca_cert=/ca.pem",
            'unknown parameter "ssl_ca_cert"; there are ssl_ca_certs, ssl_certfile',
        ),
        (
            "redis://a?ssl_ca_certs=/ca.pem",
            '"ssl_ca_certs" is for TLS, and this speaks plain text; use rediss://',
        ),
        ("rediss://a?ssl_keyfile=/me.key", "ssl_keyfile needs ssl_certfile"),
        ("rediss://a?ssl_cert_reqs=maybe", 'ssl_cert_reqs="maybe": use one of required, none'),
        ("rediss://a?ssl_check_hostname=perhaps", 'ssl_check_hostname="perhaps": use one of true, yes'),
        ("redis://a?replicas=none", 'replicas="none": give how many there are for each primary, from 1'),
        ("redis://a?replicas=0", 'replicas="0": give how many'),
    ],
)
def test_a_wrong_address_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)

    assert complaint in str(caught.value)
    assert str(caught.value).startswith('server address "')
