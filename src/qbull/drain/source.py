"""The old server: where its messages wait, and how they are taken. No other part of the drain talks to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from qbull.drain.message import SourceMessage
from qbull.store.connection.server import Server, open_server

DRAIN_BATCH_SIZE = 250
"""Number of messages that are moved at a time."""


@dataclass(frozen=True)
class SourceCollection:
    """One key with messages of a queue: a list, oldest at its tail or head, a sorted set, or a hash."""

    queue: str
    kind: Literal["tail", "head", "member", "field"]
    name: str
    index: str = ""


class SourceServer:
    """The server that is drained. `aside` is the hash of the messages that are being moved."""

    def __init__(self, url: str, kind: str) -> None:
        self.server: Server = open_server(url)
        self.aside = f"qbull:drain:{kind}"
        self._script = files("qbull.drain").joinpath("set_aside.lua").read_text()

    async def call(self, *command: str | bytes | int) -> Any:
        return await self.server.call(*command)

    async def values(
        self, collection: SourceCollection, skip: int, count: int = DRAIN_BATCH_SIZE
    ) -> list[tuple[bytes, float]]:
        """The next messages after an offset, the oldest first, with times if the collection has them."""
        match collection.kind:
            case "tail":
                found = await self.call("LRANGE", collection.name, -(skip + count), -(skip + 1))
                return [(value, 0.0) for value in reversed(found)]
            case "head":
                found = await self.call("LRANGE", collection.name, skip, skip + count - 1)
                return [(value, 0.0) for value in found]
            case "member" | "field":
                name = collection.name if collection.kind == "member" else collection.index
                flat = await self.call("ZRANGE", name, skip, skip + count - 1, "WITHSCORES")
                return [(value, float(at)) for value, at in zip(flat[::2], flat[1::2], strict=True)]

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[bool]:
        """Set messages aside. Returns for each whether it is ours now; otherwise an old worker was faster."""
        flat: list[str | bytes] = []
        for message in messages:
            flat += [message.name, message.value, message.stored, message.leftover_key]
        taken = await self.call(
            "EVAL", self._script, 1, self.aside, collection.kind, collection.name, collection.index, *flat
        )
        return [one == 1 for one in taken]

    async def forget(self, messages: Sequence[SourceMessage]) -> None:
        """Delete messages that are enqueued. Idempotent."""
        await self.call("HDEL", self.aside, *(message.name for message in messages))

    async def set_aside_before(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """Yield the messages that an interrupted drain has left set aside."""
        cursor = b"0"
        while True:
            cursor, flat = await self.call("HSCAN", self.aside, cursor, "COUNT", DRAIN_BATCH_SIZE)
            for name, kept in zip(flat[::2], flat[1::2], strict=True):
                yield name.decode(), kept
            if cursor == b"0":
                return

    async def names(self, pattern: str) -> list[str]:
        """Return the keys that match a pattern. Each step is bounded; a drain asks once."""
        found: list[str] = []
        cursor = b"0"
        while True:
            cursor, some = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found += [name.decode() for name in some]
            if cursor == b"0":
                return sorted(found)

    async def close(self) -> None:
        await self.server.close()
