"""A real HTTP server on loopback that keeps what is posted to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple


class Post(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Inbox:
    """`answers` are the statuses that the next posts are answered with; then 200."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: list[str] = []
        self.headers = ""
        self._server: asyncio.Server | None = None
        self.connections = 0

    async def __aenter__(self) -> Inbox:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            raw = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head[1:] if line}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.posts.append(Post(head[0].split()[1], raw, body))
            status = self.answers.pop(0) if self.answers else "200 OK"
            writer.write(f"HTTP/1.1 {status}\r\n{self.headers}Content-Length: 2\r\n\r\nok".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
