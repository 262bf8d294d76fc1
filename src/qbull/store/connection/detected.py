"""The server behind redis://HOST:PORT: a single server, or a cluster if the server there is one of its nodes.

A node of a cluster accepts only the commands for its own part of the keys, so it is used as a seed of its
cluster. The server is asked once, before the first command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from msgspec.structs import replace

from qbull.errors import ServerRefused
from qbull.store.connection.address import Address
from qbull.store.connection.cluster import ClusterServer
from qbull.store.connection.requirements import read_info
from qbull.store.connection.server import CommandArgument, Conversation, Server

A = TypeVar("A")


class DetectedServer(Server):
    """A server that finds out whether it is a single one or a node of a cluster."""

    def __init__(self, url: str | Address) -> None:
        super().__init__(url)
        self._cluster: ClusterServer | None = None
        self._is_known = False
        self._detecting = asyncio.Lock()

    async def call(self, *command: CommandArgument, timeout: float | None = None) -> Any:
        if not self._is_known:
            await self._detect()
        if self._cluster is not None:
            return await self._cluster.call(*command, timeout=timeout)
        return await self.call_in_turn(command, timeout=timeout)

    async def converse(self, key: str, conversation: Callable[[Conversation], Awaitable[A]]) -> A:
        if not self._is_known:
            await self._detect()
        if self._cluster is not None:
            return await self._cluster.converse(key, conversation)
        return await super().converse(key, conversation)

    async def group_by_node(self, keys: Sequence[str]) -> list[Sequence[int]]:
        if not self._is_known:
            await self._detect()
        if self._cluster is not None:
            return await self._cluster.group_by_node(keys)
        return await super().group_by_node(keys)

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes], None]:
        if not self._is_known:
            await self._detect()
        messages = super().listen if self._cluster is None else self._cluster.listen
        async with aclosing(messages(*channels)) as heard:
            async for message in heard:
                yield message

    async def primaries(self) -> list[Server]:
        if not self._is_known:
            await self._detect()
        return [self] if self._cluster is None else await self._cluster.primaries()

    def invalidate(self, node: Server) -> None:
        if self._cluster is not None:
            self._cluster.invalidate(node)

    async def close(self) -> None:
        """Close all connections. Before the next command the server is asked again."""
        cluster, self._cluster, self._is_known = self._cluster, None, False
        if cluster is not None:
            await cluster.close()
        await super().close()

    async def _detect(self) -> None:
        async with self._detecting:
            if self._is_known:
                return
            try:
                info = await read_info(Probe(self), "cluster")
            except ServerRefused:
                # If the command that follows is refused too, its error tells what is wrong.
                return
            if info.get("cluster_enabled") == "1":
                seed = self.address.at(*self.address.endpoint)
                self._cluster = ClusterServer(replace(self.address, topology="cluster", seeds=(seed,)))
                await self._drop()
            self.same_slot_only = self._cluster is not None
            self._is_known = True


class Probe:
    """The server before its kind is known."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, *command: CommandArgument) -> Any:
        return await self._server.call_in_turn(command)
