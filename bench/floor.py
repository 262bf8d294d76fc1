"""The floor: the loop that one would write by hand, with nothing in it that is not needed to run jobs.

A stream and an index of ids. The producer sends batches in one script call. The consumer has the next read in
flight while the present batch runs, one asyncio task for each job, and settles a batch in one script call. No
retries, no results, no order, no deadlines, no crash recovery, no shutdown: what a queue adds is the price
that the ratios show. Replies are taken raw, because parsing them into dictionaries is not needed either.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import redis
import redis.asyncio

from bench.contestant import Call, Gate

BATCH = 200
STREAM, INDEX, GROUP = "floor:jobs", "floor:index", "workers"

ENQUEUE = """
local places = {}
for i = 1, #ARGV, 2 do
  places[i] = ARGV[i]
  places[i + 1] = redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'payload', ARGV[i + 1])
end
return redis.call('HSET', KEYS[2], unpack(places))
"""
SETTLE = """
local half = #ARGV / 2
redis.call('XACK', KEYS[1], 'workers', unpack(ARGV, 1, half))
redis.call('XDEL', KEYS[1], unpack(ARGV, 1, half))
return redis.call('HDEL', KEYS[2], unpack(ARGV, half + 1))
"""


class Arguments(msgspec.Struct):
    n: int
    key: str
    text: str


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Arguments).decode


class Floor:
    name = "floor"

    @asynccontextmanager
    async def producing(self, url: str, kind: str) -> AsyncIterator[FloorProducer]:
        async with connect(url) as server:
            yield FloorProducer(server)

    @asynccontextmanager
    async def working(self, url: str, kind: str, gate: Gate) -> AsyncIterator[None]:
        async with connect(url) as server:
            try:
                await server.xgroup_create(STREAM, GROUP, "0", mkstream=True)
            except redis.ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
            async with asyncio.TaskGroup() as group:
                loop = group.create_task(wake_up(server, gate) if kind == "ping" else consume(server, gate))
                yield
                loop.cancel()

    def left(self, server: redis.Redis, kind: str) -> int:
        return int(server.hlen(INDEX))

    async def look(self, url: str) -> None:
        async with connect(url) as server:
            await server.hlen(INDEX)
            await server.execute_command("XRANGE", STREAM, "-", "+", "COUNT", 50)


class FloorProducer:
    def __init__(self, server: redis.asyncio.Redis) -> None:
        self._server = server
        self._enqueue = server.register_script(ENQUEUE)

    async def bulk(self, calls: Sequence[Call]) -> None:
        for start in range(0, len(calls), BATCH):
            await self._send(calls[start : start + BATCH])

    async def one(self, call: Call) -> None:
        await self._send([call])

    async def ping(self, sent_ns: int) -> None:
        await self._server.execute_command("XADD", STREAM, "*", "sent", sent_ns)

    async def _send(self, calls: Sequence[Call]) -> None:
        args = [part for call in calls for part in (os.urandom(16).hex(), encode(call))]
        await self._enqueue(keys=[STREAM, INDEX], args=args)


async def consume(server: redis.asyncio.Redis, gate: Gate) -> None:
    settle = server.register_script(SETTLE)
    reading = asyncio.create_task(read(server, BATCH))
    try:
        while True:
            entries = await reading
            reading = asyncio.create_task(read(server, BATCH))
            await asyncio.gather(*[asyncio.create_task(run(fields[3], gate)) for _, fields in entries])
            if entries:
                args = [entry for entry, _ in entries] + [fields[1] for _, fields in entries]
                await settle(keys=[STREAM, INDEX], args=args)
    finally:
        reading.cancel()


async def read(server: redis.asyncio.Redis, count: int) -> list[Any]:
    worker = f"worker-{os.getpid()}"
    reply = await server.execute_command(
        "XREADGROUP", "GROUP", GROUP, worker, "COUNT", count, "BLOCK", 5000, "STREAMS", STREAM, ">"
    )
    return reply[0][1] if reply else []


async def run(payload: bytes, gate: Gate) -> None:
    arguments = decode(payload)
    await noop(arguments.n, arguments.key, arguments.text, gate)


async def noop(n: int, key: str, text: str, gate: Gate) -> None:
    if gate.held:
        await gate.hold_up()
    gate.ran += 1


async def wake_up(server: redis.asyncio.Redis, gate: Gate) -> None:
    """The bare thing: how long from XADD in one process to the return of a blocked XREADGROUP in another."""
    while True:
        for entry, fields in await read(server, 1):
            gate.waits_ns.append(time.monotonic_ns() - int(fields[1]))
            await server.execute_command("XACK", STREAM, GROUP, entry)


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    server = redis.asyncio.Redis.from_url(url, protocol=2, socket_timeout=None)
    server.set_response_callback("XREADGROUP", lambda reply, **_: reply)
    async with server:
        yield server
