"""Record the keys that are written on a server, with their types, and the messages of qbull's channels.

The server reports them itself (keyspace notifications), so even a key that lives for a millisecond is seen.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

KEYSPACE = "__keyspace@0__:"
KINDS = {
    "string": ("set", "setrange", "incrby", "append"),
    "list": ("lpush", "rpush", "lpop", "rpop", "lset", "lrem", "ltrim"),
    "hash": ("hset", "hincrby", "hincrbyfloat", "hdel"),
    "set": ("sadd", "srem", "spop"),
    "zset": ("zadd", "zincr", "zrem", "zremrangebyscore", "zremrangebyrank", "zpopmin"),
    "stream": ("xadd", "xdel", "xtrim", "xsetid"),
}
"""The events of the server's notifications that tell the type of a key."""
LITERAL = {"used", "stop"}
"""Parts after a colon that are fixed words; all others are ids, digests or chosen names."""

_KIND = {event: kind for kind, events in KINDS.items() for event in events}
_NAME = re.compile(r"\{(?P<tag>[^}]+)\}:(?P<rest>.+)", re.DOTALL)


class Traffic:
    """Lines such as "{<prefix>:<queue>}:settings hash" and "<prefix>:bell <prefix>:<queue> layout"."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.names: set[str] = set()
        self.messages: set[str] = set()

    def see(self, channel: str, text: str) -> None:
        if channel.startswith(KEYSPACE):
            if text in _KIND:
                self.names.add(f"{self._pattern(channel.removeprefix(KEYSPACE))} {_KIND[text]}")
            return
        base, _, rest = text.partition("\n")
        short = channel.removeprefix(self.prefix)
        word = "<id>…" if short == ":done" else rest.partition(" ")[0]
        self.messages.add(f"<prefix>{short} {self._tag(base.strip('{}:')) if base else '-'} {word}".rstrip())

    def _pattern(self, name: str) -> str:
        found = _NAME.fullmatch(name)
        if found is None:
            return name
        first, *chosen = found["rest"].split(":")
        if chosen and first != "ready":
            # Lanes are bytes, so there may be any number of colons.
            last = chosen.pop() if chosen[-1] in LITERAL else ""
            chosen = [part for part in ("<…>" if chosen else "", last) if part]
        return f"{{{self._tag(found['tag'])}}}:{':'.join([first, *chosen])}"

    def _tag(self, tag: str) -> str:
        parts = tag.removeprefix(self.prefix).split(":")
        return "".join(["<prefix>", ":<queue>" * (len(parts) > 1), ":<partition>" * (len(parts) > 2)])


@asynccontextmanager
async def recorded(url: str, prefix: str) -> AsyncIterator[Traffic]:
    """Record every write on the server and every message under this prefix, within the block."""
    traffic, end = Traffic(prefix), "the end of the recording"
    subscribed = asyncio.Semaphore(0)
    server: Redis[str] = Redis.from_url(url, decode_responses=True, encoding_errors="backslashreplace")

    async def listen() -> None:
        async for message in heard.listen():
            if message["type"] == "psubscribe":
                subscribed.release()
            elif message["channel"] == end:
                return
            else:
                traffic.see(message["channel"], message["data"])

    async with server, server.pubsub() as heard:
        before: dict[str, Any] = await server.config_get("notify-keyspace-events")
        await server.config_set("notify-keyspace-events", "KA")
        await heard.psubscribe(f"{KEYSPACE}*", f"{prefix}:*", end)
        listening = asyncio.create_task(listen())
        try:
            for _ in range(3):
                await subscribed.acquire()
            yield traffic
        finally:
            await server.publish(end, "")
            await listening
            await server.config_set("notify-keyspace-events", *before.values())
