"""The server of the API: where it cannot serve, whoever starts it is told why."""

from __future__ import annotations

import socket

import pytest
from web import ACCESS

import qbull
from qbull.api.server import beside


async def test_a_port_that_another_one_took_meanwhile_is_said_and_waited_for_by_nobody(
    app: qbull.App,
) -> None:
    ours, another = socket.socket(), socket.socket()
    with ours, another:
        for one in (ours, another):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(("127.0.0.1", 0))
        another.bind(ours.getsockname())
        another.listen()

        with pytest.raises(qbull.ConfigError, match=r"cannot serve on 127\.0\.0\.1, port \d+: .*in use"):
            async with beside(qbull.asgi(app, ACCESS), ours):
                pass


async def test_what_goes_wrong_while_it_starts_is_raised(
    app: qbull.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("no protocol")

    monkeypatch.setattr("uvicorn.Server.startup", broken)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(RuntimeError, match="no protocol"),
    ):
        async with beside(qbull.asgi(app, ACCESS), listening):
            pass
