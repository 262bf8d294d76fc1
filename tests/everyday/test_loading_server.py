"""A server that is loading its dataset is unavailable. Nothing says that it is configured wrongly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.core.durability import DURABILITIES, Durability
from qbull.errors import ServerAway
from qbull.store.store import Store
from topology import DURABLE, PASSWORD, Node, wait_for

KEYS = 2_000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A durable server whose next start takes 4 seconds."""
    node = Node(tmp_path / "server", DURABLE + "enable-debug-command yes\n")
    node.start()
    try:
        node.tell_when_up("DEBUG", "POPULATE", KEYS, "filler", 100)
        node.tell("BGREWRITEAOF")
        wait_for(lambda: not node.info("persistence")["aof_rewrite_in_progress"])
        yield node
    finally:
        node.kill()


def start_slowly(node: Node) -> None:
    """Start it again and return when it answers, while it loads."""
    node.kill()
    node.arguments = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    node.start()
    wait_for(node.answers)
    assert node.info("persistence")["loading"] == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("durability", DURABILITIES[:2])
async def test_an_enqueue_waits_for_a_server_that_is_loading(node: Node, durability: Durability) -> None:
    app = qbull.App(f"redis://:{PASSWORD}@{node.place}/0", prefix="test", durability=durability)
    work = app.queue("work")

    @work.task
    async def send(number: int) -> None: ...

    await send.enqueue(number=0)
    start_slowly(node)

    job = await send.enqueue(number=1)

    assert node.info("persistence")["loading"] == 0
    assert job.created and await job.state() == "waiting"
    await app.close()


@pytest.mark.timeout(60)
async def test_a_server_that_is_loading_is_named_as_unavailable(node: Node) -> None:
    app = qbull.App(f"redis://:{PASSWORD}@{node.place}/0", prefix="test", durability="durable")
    store = app._make_store().without_retry
    start_slowly(node)

    with pytest.raises(ServerAway, match="loading"):
        await store.confirmed("durable").script("set_flag", "{test}:flag", 10)

    await eventually(lambda: _works(store), within=30)
    await store.close()


async def _works(store: Store) -> bool:
    try:
        await store.confirmed("durable").script("set_flag", "{test}:flag", 10)
    except ServerAway:
        return False
    return True
