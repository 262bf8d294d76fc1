"""Copying: bring names of one server to another one as they are, whatever the versions of the two.

The values travel as plain commands and in portions, so that neither server stands still for a large name, and
a Redis can be the source of a Valkey and the other way round.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from qbull.errors import ServerRefused
from qbull.store.connection.server import CommandArgument, Conversation

COPY_BATCH_COUNT = 200
"""Fields, members, lines or entries that are read at a time."""
SCAN_BATCH_COUNT = 1000


async def names_under(conversation: Conversation, base: str) -> list[bytes]:
    """The names of this server that start with `base`, without `base`.

    Raises ServerAway or Redirected while their slot moves, because another node may have some of them.
    """
    # No name is `base` itself, so a node that gives up the slot refuses the question.
    await conversation.call("EXISTS", base)
    found, cursor = set[bytes](), b"0"
    while True:
        cursor, names = await conversation.call(
            "SCAN", cursor, "MATCH", base + "*", "COUNT", SCAN_BATCH_COUNT
        )
        found.update(name[len(base.encode()) :] for name in names)
        if cursor == b"0":
            await conversation.call("EXISTS", base)
            return sorted(found)


async def call_all(conversation: Conversation, commands: list[tuple[CommandArgument, ...]]) -> list[Any]:
    """Send commands together. Raises the first error after all replies were read."""
    await conversation.send(*commands)
    replies, trouble = [], None
    for _ in commands:
        try:
            replies.append(await conversation.receive())
        except ServerRefused as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble
    return replies


class NameCopier:
    """Copies names from one server to another. A name that is there is replaced."""

    def __init__(self, source: Conversation, target: Conversation) -> None:
        self._source = source
        self._target = target
        self._to = b""
        self._readers: dict[bytes, Callable[[bytes], AsyncIterator[tuple[CommandArgument, ...]]]] = {
            b"string": self._string,
            b"hash": self._hash,
            b"set": self._set,
            b"zset": self._zset,
            b"list": self._list,
            b"stream": self._stream,
        }

    async def copy(self, name: bytes, to: bytes | None = None) -> None:
        """Copy one name, to another name if that is given."""
        self._to = name if to is None else to
        kind = await self._source.call("TYPE", name)
        if kind == b"none":
            return
        if kind not in self._readers:
            raise ServerRefused(f"{name!r}: another program has written something of the type {kind!r}")
        commands: list[tuple[CommandArgument, ...]] = [("UNLINK", self._to)]
        async for command in self._readers[kind](name):
            commands.append(command)
            if len(commands) >= COPY_BATCH_COUNT:
                await call_all(self._target, commands)
                commands = []
        left_ms = await self._source.call("PTTL", name)
        if left_ms > 0:
            commands.append(("PEXPIRE", self._to, left_ms))
        if commands:
            await call_all(self._target, commands)

    async def _string(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        value = await self._source.call("GET", name)
        if value is not None:
            yield ("SET", self._to, value)

    async def _hash(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        async for flat in self._scan("HSCAN", name):
            # The mark of a partition has its own time.
            pairs = [
                part
                for field, value in zip(flat[::2], flat[1::2], strict=True)
                if field != b"\n"
                for part in (field, value)
            ]
            if pairs:
                yield ("HSET", self._to, *pairs)

    async def _set(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        async for members in self._scan("SSCAN", name):
            yield ("SADD", self._to, *members)

    async def _zset(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        start = 0
        while flat := await self._source.call(
            "ZRANGE", name, start, start + COPY_BATCH_COUNT - 1, "WITHSCORES"
        ):
            pairs = zip(flat[1::2], flat[::2], strict=True)
            yield ("ZADD", self._to, *(part for pair in pairs for part in pair))
            start += COPY_BATCH_COUNT

    async def _list(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        start = 0
        while values := await self._source.call("LRANGE", name, start, start + COPY_BATCH_COUNT - 1):
            yield ("RPUSH", self._to, *values)
            start += COPY_BATCH_COUNT

    async def _stream(self, name: bytes) -> AsyncIterator[tuple[CommandArgument, ...]]:
        facts = _pairs(await self._source.call("XINFO", "STREAM", name))
        for group in await self._source.call("XINFO", "GROUPS", name):
            told = _pairs(group)
            yield ("XGROUP", "CREATE", self._to, told[b"name"], told[b"last-delivered-id"], "MKSTREAM")
        start = b"-"
        while entries := await self._source.call("XRANGE", name, start, "+", "COUNT", COPY_BATCH_COUNT):
            for entry, fields in entries:
                yield ("XADD", self._to, entry, *fields)
            start = b"(" + entries[-1][0]
        if facts[b"groups"] or facts[b"length"]:
            yield ("XSETID", self._to, facts[b"last-generated-id"])

    async def _scan(self, command: str, name: bytes) -> AsyncIterator[list[bytes]]:
        cursor = b"0"
        while True:
            cursor, flat = await self._source.call(command, name, cursor, "COUNT", COPY_BATCH_COUNT)
            if flat:
                yield flat
            if cursor == b"0":
                return


def _pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
