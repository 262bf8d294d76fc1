"""The old server: where its messages wait, and how they are taken. Every source talks to it through this."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from qbull.drain.message import SourceMessage
from qbull.store.connection.server import Server, open_server

MessagePage = tuple[int, list[SourceMessage]]
"""How many values were read, and the messages among them."""
Taken = Literal["ours", "gone", "stays"]
"""The fate of a message: it is set aside, an old worker was faster, or it has to stay."""
DRAIN_BATCH_SIZE = 250
"""Number of messages that are moved at a time."""


@dataclass(frozen=True)
class SourceCollection:
    """One key with messages of a queue.

    A list, oldest at its tail or head, a sorted set, a hash with its order in `index`, the schedules of
    BullMQ, whose next runs are in `index`, or the pending or waiting entries of a stream, whose group is
    `index`.
    """

    queue: str
    kind: Literal["tail", "head", "member", "field", "schedule", "pending", "entry"]
    name: str
    index: str = ""
    state: str = ""
    """The state of these jobs in their library, if the source needs it."""


def drain_script(name: str) -> str:
    """The Lua code of this name, which runs on the old server."""
    return files("qbull.drain").joinpath(f"{name}.lua").read_text()


class SourceServer:
    """The server that is drained. `aside` is the hash of the messages that are being moved."""

    def __init__(self, url: str, kind: str) -> None:
        self.server: Server = open_server(url)
        self.aside = f"qbull:drain:{kind}"
        self._script = drain_script("set_aside")

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
            case _:
                name = collection.index if collection.kind == "field" else collection.name
                flat = await self.call("ZRANGE", name, skip, skip + count - 1, "WITHSCORES")
                return [(value, float(at)) for value, at in zip(flat[::2], flat[1::2], strict=True)]

    async def set_aside(self, collection: SourceCollection, messages: Sequence[SourceMessage]) -> list[Taken]:
        """Set messages aside. Idempotent."""
        flat: list[str | bytes] = []
        for message in messages:
            keys = message.leftover_keys
            flat += [message.name, message.value, message.stored, str(len(keys)), *keys]
        where = (collection.kind, collection.name, collection.index)
        return await self.take(self._script, *where, *flat)

    async def take(self, script: str, *arguments: str | bytes) -> list[Taken]:
        """Call a script that sets messages aside, and returns a word for each."""
        return [word.decode() for word in await self.call("EVAL", script, 1, self.aside, *arguments)]

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
