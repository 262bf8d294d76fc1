"""Proxies: a process with a TCP proxy before each server, which can slow down, cut, deafen and silence connections.

Run by the campaign, which tells it by lines of JSON on its standard input: either {"listen": port, "target": port}, or a
fault: {"mood": …, "target": port, "share": part of the connections, "seconds": …, "delay": …}.

    slow     everything takes `delay` longer
    cut      of the next reply the first half is passed on, then the connection is reset
    swallow  the next reply is dropped and the connection reset: the server has done it, and nobody is told
    deaf     requests pass, replies do not until it is over; then they are late, or the connection is reset
    hole     nothing passes until it is over, then as above

It answers a fault with a line of JSON: the clients' ports of the connections that it struck.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sys
from collections import deque
from typing import Any

import uvloop

luck = random.Random()


class Pipe(asyncio.Protocol):
    """One direction of a connection: what arrives here leaves by `other`."""

    def __init__(self, link: Link, *, replies: bool) -> None:
        self.link = link
        self.replies = replies
        self.transport: asyncio.Transport | None = None
        self.other: Pipe | None = None
        self._held: deque[tuple[float, bytes]] = deque()
        self._early = bytearray()
        """What arrived before the other side was connected."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.other is not None and self.other._early:
            transport.write(bytes(self.other._early))
            self.other._early.clear()

    def data_received(self, data: bytes) -> None:
        link = self.link
        wait = 0.0
        if link.mood:
            if self.replies and link.mood in ("cut", "swallow"):
                if link.mood == "cut":
                    self._pass(data[: len(data) // 2])
                link.reset()
                return
            wait = link.holds(self.replies)
        if not wait and not self._held:
            self._pass(data)
            return
        loop = asyncio.get_running_loop()
        due = max(loop.time() + wait, self._held[-1][0] if self._held else 0.0)
        self._held.append((due, data))
        loop.call_at(due, self._let_go)

    def _let_go(self) -> None:
        if self._held:
            self._pass(self._held.popleft()[1])

    def _pass(self, data: bytes) -> None:
        target = self.other.transport if self.other is not None else None
        if target is None:
            self._early += data
        elif not target.is_closing():
            target.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.link.close()


class Link:
    """A connection through a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.mood = ""
        self.until = 0.0
        self.delay = 0.0
        self.client = Pipe(self, replies=False)
        self.server = Pipe(self, replies=True)
        self.client.other, self.server.other = self.server, self.client

    @property
    def port(self) -> int:
        """The client's own."""
        name = self.client.transport.get_extra_info("peername") if self.client.transport is not None else None
        return int(name[1]) if name else 0

    def feel(self, mood: str, seconds: float, delay: float, late: bool) -> None:
        loop = asyncio.get_running_loop()
        self.mood, self.delay, self.until = mood, delay, loop.time() + seconds
        loop.call_later(seconds, self._over, mood in ("deaf", "hole") and not late)

    def holds(self, replies: bool) -> float:
        """Seconds for which something is held back."""
        if self.mood == "slow":
            return self.delay
        if self.mood == "hole" or replies:
            return max(self.until - asyncio.get_running_loop().time(), 0.0) + 0.001
        return 0.0

    def _over(self, reset: bool) -> None:
        self.mood = ""
        if reset:
            self.reset()

    def reset(self) -> None:
        for pipe in (self.client, self.server):
            if pipe.transport is not None:
                pipe.transport.abort()

    def close(self) -> None:
        self.proxy.links.discard(self)
        for pipe in (self.client, self.server):
            if pipe.transport is not None:
                pipe.transport.close()


class Proxy:
    def __init__(self, target: int) -> None:
        self.target = target
        self.links: set[Link] = set()
        self._connecting: set[asyncio.Future[None]] = set()

    async def listen(self, port: int) -> None:
        await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", port, reuse_address=True)

    def _accept(self) -> Pipe:
        link = Link(self)
        self.links.add(link)
        self._connecting.add(task := asyncio.ensure_future(self._connect(link)))
        task.add_done_callback(self._connecting.discard)
        return link.client

    async def _connect(self, link: Link) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: link.server, "127.0.0.1", self.target)
        except OSError:
            link.reset()
            return
        client = link.client.transport
        if client is not None and client.is_closing():
            link.close()

    def suffer(self, order: dict[str, Any]) -> list[int]:
        struck = [link for link in self.links if luck.random() < order["share"]]
        for link in struck:
            link.feel(order["mood"], order["seconds"], order.get("delay", 0.0), luck.random() < 0.5)
        return [link.port for link in struck]


async def main() -> None:
    luck.seed(int(sys.argv[1]))
    proxies: dict[int, Proxy] = {}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        order = json.loads(line)
        if "listen" in order:
            proxies[order["target"]] = Proxy(order["target"])
            await proxies[order["target"]].listen(order["listen"])
            print("listening", flush=True)
        else:
            print(json.dumps(proxies[order["target"]].suffer(order)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
