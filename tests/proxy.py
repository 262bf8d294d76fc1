"""A proxy on loopback between a client and its server, that can lose replies, hold them back, go silent or be away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

Mood = Literal["fair", "loses replies", "silent", "away"]


class Proxy:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._tasks: set[asyncio.Task[None]] = set()
        self.mood: Mood = "fair"
        self.lost = 0
        self.port = 0
        self._stranded = 0  # connections that were made before so many strandings hear nothing any more

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def strand(self) -> None:
        """The connections that there are now are never heard of again, as behind a router that has forgotten them."""
        self._stranded += 1

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_unix_connection(str(self._socket))
        me = asyncio.current_task()
        assert me is not None
        self._tasks.add(me)
        try:
            there = asyncio.create_task(self._pump(client_in, server_out, replies=False))
            back = asyncio.create_task(self._pump(server_in, client_out, replies=True))
            with suppress(asyncio.CancelledError):
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            for task in (there, back):
                task.cancel()
        finally:
            self._tasks.discard(me)
            for writer in (client_out, server_out):
                with suppress(OSError):
                    writer.close()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        born = self._stranded
        with suppress(OSError):
            while data := await source.read(65536):
                if replies and self.mood == "loses replies":
                    self.lost += 1
                    return  # the server has done it, and nobody will know
                if self.mood == "away":
                    self.lost += 1
                    return  # the server has not heard of it
                while self.mood == "silent" or born < self._stranded:
                    await asyncio.sleep(0.05)
                target.write(data)
                await target.drain()
