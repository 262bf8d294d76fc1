"""Each line that doctor says of a server, from a real one in that state."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis
import trustme

from needed_tools import skip_without_tool
from qbull.cli.doctor.durability import check_durability
from qbull.cli.doctor.server import check_server
from qbull.store.store import Store
from relay import relaying, server_context
from small_disk import fill, mount_small_disk  # noqa: F401 - one is a fixture
from topology import COMMON, DURABLE, PASSWORD, Node, wait_for

SKEWED = Path(__file__).parents[1] / "chaos" / "skewed.c"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", DURABLE)
    node.start()
    wait_for(node.answers)
    yield node
    node.kill()


async def said(url: str) -> str:
    store = Store(url, "test")
    try:
        return "\n".join([finding.line async for finding in check_server(store, None)])
    finally:
        await store.close()


def url_of(node: Node, host: str = "127.0.0.1") -> str:
    return f"redis://:{PASSWORD}@{host}:{node.port}/0"


async def test_what_is_well(node: Node) -> None:
    lines = await said(url_of(node))

    for line in (
        "ok       server: Valkey ",
        "ok       policy: the version is supported, and nothing is evicted when memory runs out",
        'ok       durability: "durable" is supported',
        "ok       transport: does not leave this machine",
        "ok       scripts: can run",
    ):
        assert line in lines
    assert "from the clock here" in lines and "now, none rejected" in lines


async def test_a_replica(node: Node) -> None:
    node.tell("REPLICAOF", "127.0.0.1", "1")

    lines = await said(url_of(node))

    assert "problem  role: this is a replica, which accepts no jobs; use the address of its primary" in lines


@pytest.mark.parametrize(
    ("share", "line"),
    [
        (0.5, "ok       memory: "),
        (0.83, "note     memory: "),
        (0.99, "problem  memory: "),
    ],
)
async def test_memory_that_fills_up(node: Node, share: float, line: str) -> None:
    used = node.info("memory")["used_memory"]
    node.tell("CONFIG", "SET", "maxmemory", int(used / share))

    lines = await said(url_of(node))

    assert line in lines
    assert ("raise maxmemory, or keep fewer finished jobs" in lines) is (share > 0.75)


async def test_plain_text_over_a_network(node: Node) -> None:
    lines = await said(url_of(node, "0.0.0.0"))  # the same place, but the name does not say so

    assert "note     transport: plain text over the network; use rediss:// if others can listen" in lines


async def test_tls_that_verifies_and_tls_that_does_not(node: Node, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with relaying(node.port, server_context(ca)) as relay:
        url = f"rediss://:{PASSWORD}@{relay.place}/0"
        verified = await said(f"{url}?ssl_ca_certs={tmp_path / 'ca.pem'}")
        anyone = await said(f"{url}?ssl_cert_reqs=none")

    assert "ok       transport: TLS, and the server's certificate is verified" in verified
    assert "note     transport: TLS with any certificate; remove ssl_cert_reqs=none" in anyone


async def test_connections_that_were_rejected(node: Node) -> None:
    node.tell("CONFIG", "SET", "maxclients", "2")
    with ExitStack() as stack:
        lines_in = [stack.enter_context(socket.create_connection(("127.0.0.1", node.port))) for _ in range(3)]
        assert b"max number of clients" in lines_in[-1].recv(100)

    def raised() -> bool:
        with suppress(redis.RedisError):
            return bool(node.tell("CONFIG", "SET", "maxclients", "100"))
        return False

    wait_for(raised)  # when the server has noticed that the others are gone

    lines = await said(url_of(node))

    assert "rejected since the server started; raise its maxclients" in lines


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (3630, "1 h 0 min ahead of the clock here"),
        (-7230, "2 h 0 min behind the clock here"),
        (0, "ms from the clock here"),
    ],
)
async def test_a_clock_that_is_wrong(tmp_path: Path, seconds: int, line: str) -> None:
    if (compiler := shutil.which("cc")) is None or sys.platform != "linux":
        skip_without_tool("no C compiler (cc) for the library that turns the clock")
    library, skew = tmp_path / "skewed.so", tmp_path / "skew"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SKEWED], check=True)
    skew.write_bytes(struct.pack("<q", seconds))
    node = Node(tmp_path / "node", COMMON, environment={"LD_PRELOAD": str(library), "SKEWED": str(skew)})
    node.start()
    wait_for(node.answers)

    lines = await said(url_of(node))
    node.kill()

    [clock] = [each for each in lines.splitlines() if " clock: " in each]
    assert line in clock
    assert ("behind the clock here; qbull uses the server's clock" in clock) is (seconds < 0)


async def test_no_profile_holds_where_one_is_asked_for(node: Node) -> None:
    node.tell("CONFIG", "SET", "appendonly", "no")
    store = Store(url_of(node), "test")

    [finding] = [each async for each in check_durability(store, "durable")]
    await store.close()

    assert finding.line.startswith(
        'problem  durability: no profile is supported, and the app requires "durable": '
    )


async def test_an_embedded_server_on_a_large_disk_and_its_user(tmp_path: Path) -> None:
    lines = await said(f"embedded://{tmp_path / 'data'}")

    assert f"disk: {tmp_path / 'data'} has " in lines
    assert ("note     embedded server: runs as root" in lines) is (os.geteuid() == 0)


async def test_an_embedded_server_whose_disk_fills_up(small_disk: Path) -> None:
    url = f"embedded://{small_disk / 'data'}"
    little = await said(url)
    store = Store(url, "test")
    await store.open()  # it runs while the disk is filled
    await asyncio.to_thread(fill, small_disk, 300_000)
    full = await said(url)
    await store.close()

    assert (
        "note     disk: " in little and "left; free some space: without it nothing can be enqueued" in little
    )
    assert (
        f"problem  disk: {small_disk / 'data'} is full; free some space: until then nothing can be enqueued"
        in full
    )
