"""Shelf: where messages wait on the old server, and how they are taken from there. The only part of the drain that asks that server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from qbull.drain.message import SourceMessage
from qbull.store.connection.server import Server, open_server

DRAIN_BATCH_SIZE = 250
"""Messages that are between the two servers at a time."""


@dataclass(frozen=True)
class SourceCollection:
    """One place where messages of a queue wait: the oldest at the tail or head of a list, members of a sorted set, fields of a hash."""

    queue: str
    kind: Literal["tail", "head", "member", "field"]
    name: str
    index: str = ""


class SourceServer:
    """The server that is emptied. `aside` is the hash in which messages are between two servers."""

    def __init__(self, url: str, kind: str) -> None:
        self.server: Server = open_server(url)
        self.aside = f"qbull:drain:{kind}"
        self._script = files("qbull.drain").joinpath("set_aside.lua").read_text()

    async def call(self, *command: str | bytes | int) -> Any:
        return await self.server.call(*command)

    async def values(
        self, shelf: SourceCollection, skip: int, count: int = DRAIN_BATCH_SIZE
    ) -> list[tuple[bytes, float]]:
        """The next of a shelf behind the first so many, the oldest first; with its time, where the shelf has times."""
        match shelf.kind:
            case "tail":
                found = await self.call("LRANGE", shelf.name, -(skip + count), -(skip + 1))
                return [(value, 0.0) for value in reversed(found)]
            case "head":
                found = await self.call("LRANGE", shelf.name, skip, skip + count - 1)
                return [(value, 0.0) for value in found]
            case "member" | "field":
                name = shelf.name if shelf.kind == "member" else shelf.index
                flat = await self.call("ZRANGE", name, skip, skip + count - 1, "WITHSCORES")
                return [(value, float(at)) for value, at in zip(flat[::2], flat[1::2], strict=True)]

    async def set_aside(self, shelf: SourceCollection, messages: Sequence[SourceMessage]) -> list[bool]:
        """For each whether it is ours now; else an old worker was faster."""
        flat: list[str | bytes] = []
        for message in messages:
            flat += [message.name, message.value, message.kept, message.rubbish]
        taken = await self.call(
            "EVAL", self._script, 1, self.aside, shelf.kind, shelf.name, shelf.index, *flat
        )
        return [one == 1 for one in taken]

    async def forget(self, messages: Sequence[SourceMessage]) -> None:
        """They are enqueued, and nothing is left of them here. May be done twice."""
        await self.call("HDEL", self.aside, *(message.name for message in messages))

    async def set_aside_before(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """What an earlier drain has not brought to its end: name and kept."""
        cursor = b"0"
        while True:
            cursor, flat = await self.call("HSCAN", self.aside, cursor, "COUNT", DRAIN_BATCH_SIZE)
            for name, kept in zip(flat[::2], flat[1::2], strict=True):
                yield name.decode(), kept
            if cursor == b"0":
                return

    async def names(self, pattern: str) -> list[str]:
        """Names of the old server. Bounded in each step, and asked once in a drain."""
        found: list[str] = []
        cursor = b"0"
        while True:
            cursor, some = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found += [name.decode() for name in some]
            if cursor == b"0":
                return sorted(found)

    async def close(self) -> None:
        await self.server.close()
