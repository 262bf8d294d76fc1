"""A power cut: every server is gone at once, and with it all that was not flushed to a disk.

A killed process proves nothing about flushing, because the system still writes what it was given. So a small library in
the servers writes down how much of each file was flushed, and the cut takes the rest away.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from needed_tools import needs_tool
from qbull.core.durability import Durability
from qbull.store import retry
from topology import DURABLE, Node, Pair, raised_pair

COMPILER = shutil.which("cc")
ROUNDS = 3

pytestmark = [
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        sys.platform != "linux", reason="needs /proc and a library that is loaded before others"
    ),
    needs_tool(COMPILER, "needs a C compiler (cc)"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flushed") / "flushed.so"
    source = Path(__file__).with_name("flushed.c")
    subprocess.run([COMPILER or "cc", "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for servers without power."""
    monkeypatch.setattr(retry, "SERVER_RETRY_SECONDS", 0.2)


@pytest.fixture
def pair(library: Path, tmp_path: Path) -> Iterator[Pair]:
    """A primary and its replica, of which it is known what they have flushed."""
    with raised_pair(tmp_path, environment={"LD_PRELOAD": str(library)}) as pair:
        yield pair


def cut_power(*nodes: Node) -> None:
    for node in nodes:
        node.kill()
    for node in nodes:
        for file in (node.directory / "appendonlydir").glob("*.incr.aof"):
            noted = node.directory / "flushed" / file.name
            flushed = int(noted.read_text()) if noted.exists() else 0
            with file.open("r+b") as log:
                log.truncate(flushed)


def kept(node: Node) -> set[str]:
    return {id.decode() for id in node.tell("HKEYS", "{qbull:orders:0}:index")}


async def enqueue_until_the_cut(
    url: str, durability: Durability | None, nodes: list[Node], name: str
) -> set[str]:
    """Producers at work when the lights go out; answers with the jobs that were acknowledged."""
    acknowledged: set[str] = set()
    async with qbull.App(url, durability=durability) as app:

        @app.queue("orders").task
        async def take(order: str) -> None: ...

        async def produce(number: int) -> None:
            with suppress(qbull.ServerError):
                for n in range(100_000):
                    id = f"{name}-{number}-{n}"
                    await take.options(id=id).enqueue(order=id)
                    acknowledged.add(id)

        async def enough() -> bool:
            return len(acknowledged) > 100

        producers = [asyncio.create_task(produce(number)) for number in range(16)]
        await eventually(enough, within=60)
        await asyncio.to_thread(cut_power, *nodes)
        await asyncio.gather(*producers)
    return acknowledged


async def restart(*nodes: Node) -> None:
    for node in nodes:
        node.start()
        await asyncio.to_thread(node.tell_when_up, "PING")


async def test_durable_jobs_outlive_a_power_cut(pair: Pair) -> None:
    acknowledged: set[str] = set()

    for number in range(ROUNDS):
        acknowledged |= await enqueue_until_the_cut(pair.url, "durable", [pair.primary], str(number))
        await restart(pair.primary)

        assert acknowledged - kept(pair.primary) == set()


async def test_strict_jobs_outlive_a_power_cut_of_all_servers_on_each_of_them(pair: Pair) -> None:
    nodes = [pair.primary, *pair.replicas]
    acknowledged: set[str] = set()

    for number in range(ROUNDS):
        acknowledged |= await enqueue_until_the_cut(pair.url, "strict", nodes, str(number))
        await restart(*nodes)

        assert [acknowledged - kept(node) for node in nodes] == [set(), set()]
        pair.replicas[0].tell("REPLICAOF", "127.0.0.1", pair.primary.port)
        await asyncio.to_thread(pair.wait_until_whole)


async def test_without_flushing_the_same_loses_jobs(pair: Pair) -> None:
    """Otherwise the cut would be none, and the tests above would prove nothing."""
    assert "appendfsync always" in DURABLE
    pair.primary.settings = pair.primary.settings.replace("appendfsync always", "appendfsync everysec")
    (pair.primary.directory / "server.conf").unlink()
    pair.primary.kill()
    await restart(pair.primary)

    acknowledged = await enqueue_until_the_cut(pair.url, "fast", [pair.primary], "fast")
    await restart(pair.primary)

    assert acknowledged - kept(pair.primary) != set()
