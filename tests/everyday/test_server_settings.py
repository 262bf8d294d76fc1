"""A process notices what becomes of its server while it runs: an unsafe setting, or a machine that is gone."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import qbull
from conftest import eventually
from qbull.errors import ServerRefused
from qbull.store import retry
from qbull.store.connection.server import open_server
from topology import DURABLE, PASSWORD, Node


@pytest.mark.timeout(60)
async def test_an_eviction_policy_that_is_changed_later_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert retry.SERVER_CHECK_TTL_SECONDS <= 60
    monkeypatch.setattr(retry, "SERVER_CHECK_TTL_SECONDS", 0.05)
    node = Node(tmp_path / "server", DURABLE)
    node.start()
    app = qbull.App(f"redis://:{PASSWORD}@{node.place}/0", prefix="test")
    work = app.queue("work")

    @work.task
    async def send(number: int) -> None: ...

    async def is_refused() -> bool:
        try:
            await send.enqueue(number=1)
        except ServerRefused as error:
            return 'its maxmemory-policy is "allkeys-lru"' in str(error)
        return False

    try:
        node.tell_when_up("PING")
        assert not await is_refused()
        node.tell("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await eventually(is_refused)
        node.tell("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert not await is_refused()
        await app.close()
    finally:
        node.kill()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no such option")
async def test_a_connection_to_a_machine_that_is_gone_ends_within_3_seconds(tmp_path: Path) -> None:
    """Nothing here can make a machine vanish, so this looks at the options with which the kernel notices it."""
    node = Node(tmp_path / "server", DURABLE)
    node.start()
    server = open_server(f"redis://:{PASSWORD}@{node.place}/0")
    try:
        node.tell_when_up("PING")
        await server.call("PING")
        writer = server._idle[0]._writer  # type: ignore[attr-defined]
        link = writer.get_extra_info("socket")

        def option(name: int) -> int:
            return int(link.getsockopt(socket.IPPROTO_TCP, name))

        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count = map(option, (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
        assert idle + interval * count <= 3
        assert option(socket.TCP_USER_TIMEOUT) <= 3000
        await server.close()
    finally:
        node.kill()
