"""The specification of listening: a subscription that is gone is said, so that whoever listens makes a new one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from qbull.errors import ServerAway
from qbull.store.connection.server import Server
from qbull.store.store import Store


async def test_a_listener_whose_connection_is_closed_while_it_waits_is_told(store: Store) -> None:
    async with aclosing(store.server.listen("news")) as heard:
        await anext(heard)
        waiting = asyncio.ensure_future(anext(heard))
        await asyncio.sleep(0)

        await store.server._stop_listening()

        with pytest.raises(ServerAway):
            await asyncio.wait_for(waiting, 20)


async def test_so_is_one_whose_connection_is_closed_just_when_it_has_waited_long_enough(store: Store) -> None:
    """It asks then whether the other end is still there. On a new connection it would be, but nothing is said on that."""
    async with aclosing(store.server.listen("news")) as heard:
        await anext(heard)
        (connection,) = store.server._listening
        read = connection.read_response

        async def in_vain(**_: Any) -> None:
            connection.read_response = read  # type: ignore[method-assign]
            await store.server._stop_listening()

        connection.read_response = in_vain  # type: ignore[method-assign, assignment]

        with pytest.raises(ServerAway):
            await asyncio.wait_for(anext(heard), 20)


async def test_so_is_one_that_was_still_connecting_when_all_connections_were_closed(
    server_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover it may have reached the old server, where nobody says anything any more."""
    listener = Server(server_url)
    connecting, may_go_on, dial = asyncio.Event(), asyncio.Event(), listener._dial

    async def slowly(*args: Any) -> Any:
        connection = await dial(*args)
        connecting.set()
        await may_go_on.wait()
        return connection

    monkeypatch.setattr(listener, "_dial", slowly)
    async with aclosing(listener.listen("news")) as heard:
        waiting = asyncio.ensure_future(anext(heard))
        await connecting.wait()

        await listener.close()
        may_go_on.set()

        with pytest.raises(ServerAway):
            await asyncio.wait_for(waiting, 20)
