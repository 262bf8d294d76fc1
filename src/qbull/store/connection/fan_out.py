"""Fan-out: read many partitions in few round trips, for queues with up to a thousand partitions.

The calls to one server are pipelined, a bounded number at a time; the nodes of a cluster are called
concurrently. Calls may be sent twice, so they must be idempotent. An outage is raised as by a single call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from qbull.errors import ServerAway
from qbull.store.connection.scripts import script
from qbull.store.connection.server import CommandArgument, Conversation, ErrorReply, NoScript, Server
from qbull.store.retry import idempotent
from qbull.store.verbs.partition import Partition

PIPELINE_BATCH_SIZE = 64
"""Calls in one pipeline; other callers get their turn in between."""
MAX_SCRIPT_ATTEMPTS = 3
"""How often a server may forget the script during one call."""


async def run_scripts(server: Server, verb: str, calls: Sequence[tuple[CommandArgument, ...]]) -> list[Any]:
    """Run a verb once for each (key, arguments …); returns the answers in the same order."""
    digest = script(verb, test_clock=server.address.test_clock).digest
    keys = [str(call[0]) for call in calls]
    replies: list[Any] = [None] * len(calls)

    async def some(group: Sequence[int]) -> None:
        found = await _sent(server, keys[group[0]], [("EVALSHA", digest, 1, *calls[at]) for at in group])
        for at, reply in zip(group, found, strict=True):
            replies[at] = reply

    async def until_known(group: Sequence[int]) -> None:
        for n in range(1, MAX_SCRIPT_ATTEMPTS + 1):
            try:
                await some(group)
                break
            except NoScript:
                if n == MAX_SCRIPT_ATTEMPTS:
                    raise
                await server.script(verb, keys[group[0]], *calls[group[0]][1:])  # now it knows it
            except ErrorReply:
                server.errors[keys[group[0]]] += 1
                raise

    await _each(server, keys, until_known)
    return replies


async def run_commands(server: Server, calls: Sequence[tuple[CommandArgument, ...]]) -> list[Any]:
    """Send commands whose second word is their key; returns the answers in the same order."""
    replies: list[Any] = [None] * len(calls)

    async def some(group: Sequence[int]) -> None:
        found = await _sent(server, str(calls[group[0]][1]), [calls[at] for at in group])
        for at, reply in zip(group, found, strict=True):
            replies[at] = reply

    await _each(server, [str(call[1]) for call in calls], some)
    return replies


async def partitions_holding(partitions: Sequence[Partition], id: str) -> list[Partition]:
    """The partitions that have a job with this id."""
    if not partitions:
        return []
    known = await _exists(partitions, id)
    return [partition for partition, there in zip(partitions, known, strict=True) if there]


@idempotent
async def _exists(partitions: Sequence[Partition], id: str) -> list[int]:
    asked = [("HEXISTS", partition.base + "index", id) for partition in partitions]
    return await run_commands(partitions[0].server, asked)


async def _each(
    server: Server, keys: Sequence[str], send: Callable[[Sequence[int]], Awaitable[None]]
) -> None:
    """`send` each server its keys. If a cluster has moved some of them, look up their owners once more."""
    for is_last in (not server.same_slot_only, True):
        groups = await server.group_by_node(keys) if keys else []
        ends = await asyncio.gather(*map(send, groups), return_exceptions=True)
        errors = [end for end in ends if end is not None]
        if not errors:
            return
        if is_last or not isinstance(errors[0], ServerAway):
            raise errors[0]


async def _sent(server: Server, key: str, calls: Sequence[tuple[CommandArgument, ...]]) -> list[Any]:
    async def conversation(talk: Conversation) -> list[Any]:
        replies = []
        for start in range(0, len(calls), PIPELINE_BATCH_SIZE):
            some = calls[start : start + PIPELINE_BATCH_SIZE]
            await talk.send(*some)
            replies += [await talk.receive() for _ in some]
        return replies

    return await server.converse(key, conversation)
