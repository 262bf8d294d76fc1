"""Save a server's data as plain commands, because Redis and Valkey do not load each other's dumps.

A key that had an hour to live when it was saved has an hour to live after it was loaded.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from redis import Redis

Command = list[bytes | int | str]
Ask = Callable[..., Any]


def save(server: Redis, path: Path) -> None:
    """Write all keys of the server to a file. Afterwards the client returns raw answers only."""
    server.response_callbacks.clear()
    ask = server.execute_command
    commands = [command for name in sorted(ask("KEYS", "*")) for command in _commands(ask, name)]
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(commands), preset=9))


def load(server: Redis, path: Path) -> None:
    """Load a saved file into an empty server. Afterwards the client returns raw answers only."""
    commands: list[Command] = msgspec.msgpack.decode(lzma.decompress(path.read_bytes()))
    server.response_callbacks.clear()
    pipeline = server.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    pipeline.execute()


def _commands(ask: Ask, name: bytes) -> Iterator[Command]:
    kind = ask("TYPE", name)
    if kind == b"string":
        yield ["SET", name, ask("GET", name)]
    elif kind == b"hash":
        yield ["HSET", name, *ask("HGETALL", name)]
    elif kind == b"set":
        yield ["SADD", name, *sorted(ask("SMEMBERS", name))]
    elif kind == b"list":
        yield ["RPUSH", name, *ask("LRANGE", name, 0, -1)]
    elif kind == b"zset":
        flat = ask("ZRANGE", name, 0, -1, "WITHSCORES")
        yield ["ZADD", name, *(part for n in range(0, len(flat), 2) for part in (flat[n + 1], flat[n]))]
    else:
        yield from _stream(ask, name)
    left = ask("PTTL", name)
    if left >= 0:
        yield ["PEXPIRE", name, left]


def _stream(ask: Ask, name: bytes) -> Iterator[Command]:
    about = _pairs(ask("XINFO", "STREAM", name))
    entries = ask("XRANGE", name, "-", "+")
    for id, flat in entries:
        yield ["XADD", name, id, *flat]
    if not entries:
        yield ["XGROUP", "CREATE", name, "none", 0, "MKSTREAM"]
        yield ["XGROUP", "DESTROY", name, "none"]
    counts = ["ENTRIESADDED", about["entries-added"], "MAXDELETEDID", about["max-deleted-entry-id"]]
    yield ["XSETID", name, about["last-generated-id"], *counts]
    for group in map(_pairs, ask("XINFO", "GROUPS", name)):
        yield from _group(ask, name, group)


def _group(ask: Ask, name: bytes, group: dict[str, Any]) -> Iterator[Command]:
    read = [] if group["entries-read"] is None else ["ENTRIESREAD", group["entries-read"]]
    yield ["XGROUP", "CREATE", name, group["name"], group["last-delivered-id"], *read]
    for consumer in map(_pairs, ask("XINFO", "CONSUMERS", name, group["name"])):
        yield ["XGROUP", "CREATECONSUMER", name, group["name"], consumer["name"]]
    seconds, _ = ask("TIME")
    for id, consumer, idle, times in ask("XPENDING", name, group["name"], "-", "+", 1000):
        how = ["TIME", int(seconds) * 1000 - idle, "RETRYCOUNT", times, "FORCE", "JUSTID"]
        yield ["XCLAIM", name, group["name"], consumer, 0, id, *how]


def _pairs(flat: list[Any]) -> dict[str, Any]:
    return {flat[n].decode(): flat[n + 1] for n in range(0, len(flat), 2)}
