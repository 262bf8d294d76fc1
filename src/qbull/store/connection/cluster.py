"""Cluster: one Server for each node; every command goes to the primary that owns its key.

Any node can say which node owns which slot. It is asked again before the next call if a node became
unavailable or answered that another one owns the slot. A command is sent again only if the answer says that
it was not executed (MOVED, ASK). Every other failure is raised as ServerAway, as by a single server, and the
verb decides about a retry.

While a slot moves name by name (MIGRATING and IMPORTING), its names are on two nodes. A command with one name
is answered by the node that has it. A script uses many names and declares only the base of its partition,
which is never a name itself, so the old owner refuses every script of such a partition with ASK. We do not
follow: on the new owner, the script would find half a partition. So the partition pauses until its slot has
arrived.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from redis.crc import key_slot

from qbull.core.backoff import jittered
from qbull.errors import ServerAway, ServerError, ServerRefused
from qbull.store.connection.address import Address
from qbull.store.connection.server import (
    CommandArgument,
    Conversation,
    ErrorReply,
    Redirected,
    Server,
    TopologyLookup,
)

A = TypeVar("A")

HASH_SLOT_COUNT = 16384
MAX_REDIRECTS = 5
NODE_ASK_TIMEOUT_SECONDS = 1.0
"""How long one node may take to list the owners; then another node is asked."""
CLUSTER_REDISCOVERY_PAUSE_SECONDS = 0.1
"""Pause between two such questions, however many calls fail in the meantime."""

# fmt: off
_KEYLESS_COMMANDS = frozenset([
    "CLIENT", "CLUSTER", "CONFIG", "DBSIZE", "FLUSHALL", "FLUSHDB", "INFO", "KEYS",
    "PING", "PUBLISH", "ROLE", "SCAN", "SCRIPT", "TIME",
])
# fmt: on
_SUBCOMMAND_KEY_COMMANDS = frozenset(["XGROUP", "XINFO"])
_SCRIPT_COMMANDS = frozenset(["EVAL", "EVALSHA"])
_STREAM_COMMANDS = frozenset(["XREAD", "XREADGROUP"])


class ClusterServer(Server):
    """A Redis or Valkey cluster, for one event loop."""

    same_slot_only = True

    def __init__(self, url: str | Address) -> None:
        super().__init__(url)
        self._nodes: dict[tuple[str, int], Server] = {}
        self._owners: list[Server | None] = []
        self._primaries: list[Server] = []
        self._is_stale = True
        self._suspect: Server | None = None  # it failed last: ask the others first
        self._lookup = TopologyLookup(self._ask_nodes, CLUSTER_REDISCOVERY_PAUSE_SECONDS)

    async def call(self, *command: CommandArgument, timeout: float | None = None) -> Any:
        slot = slot_of(command)
        node = await self._owner(slot)
        turn = [command]
        for _ in range(MAX_REDIRECTS):
            try:
                return await node.call_in_turn(*turn, timeout=timeout)
            except Redirected as redirected:
                self._is_stale = self._is_stale or not redirected.once
                if redirected.once and command[0] in _SCRIPT_COMMANDS:
                    raise self._unavailable(f"slot {slot} is being moved to another node") from None
                turn = [("ASKING",), command] if redirected.once else [command]
                node = self._node(redirected.endpoint)
            except ServerAway:
                self.invalidate(node)
                raise
        raise self._unavailable(f"its nodes do not agree on who owns slot {slot}")

    async def converse(self, key: str, conversation: Callable[[Conversation], Awaitable[A]]) -> A:
        """Talk to the primary that owns the key. The caller starts again if the owner changes."""
        slot = _slot(key)
        node = await self._owner(slot)
        try:
            return await node.converse(key, conversation)
        except Redirected:
            self._is_stale = True
            raise self._unavailable(f"slot {slot} moves, or has moved, to another node") from None
        except ServerAway:
            self.invalidate(node)
            raise

    async def group_by_node(self, keys: Sequence[str]) -> list[Sequence[int]]:
        groups: dict[int, list[int]] = {}
        for at, key in enumerate(keys):
            groups.setdefault(id(await self._owner(_slot(key))), []).append(at)
        return list(groups.values())

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes], None]:
        """Listen at one node: all nodes pass on the published messages.

        If it fails, ("", b"") follows when another node is listened to.
        """
        while True:
            await self._discover()
            stood = False
            for node in self._in_turn():
                try:
                    async with aclosing(node.listen(*channels)) as messages:
                        async for message in messages:
                            stood = True
                            yield message
                except ServerAway as error:
                    self.invalidate(node)
                    lost = error
                if stood:
                    break
            else:
                raise lost
            await asyncio.sleep(jittered(CLUSTER_REDISCOVERY_PAUSE_SECONDS))

    async def primaries(self) -> list[Server]:
        await self._discover()
        return list(self._primaries)

    async def close(self) -> None:
        nodes = list(self._nodes.values())
        self._nodes, self._owners, self._primaries = {}, [], []
        self._is_stale = True
        self._lookup.forget()
        for node in nodes:
            await node.close()

    async def _owner(self, slot: int | None) -> Server:
        await self._discover()
        owner = random.choice(self._primaries) if slot is None else self._owners[slot]  # noqa: S311
        if owner is None:
            self._is_stale = True
            raise self._unavailable(f"no node owns slot {slot}")
        return owner

    def invalidate(self, node: Server) -> None:
        self._is_stale = True
        self._suspect = node

    async def _discover(self) -> None:
        """Read the owners of the slots if they may have changed."""
        if self._is_stale:
            try:
                await self._lookup()
            except ServerError:
                if not self._owners:
                    raise  # otherwise the known owners may still be right: the call will tell

    async def _ask_nodes(self) -> None:
        failures: list[ServerError] = []
        for node in self._in_turn():
            try:
                async with asyncio.timeout(NODE_ASK_TIMEOUT_SECONDS):
                    ranges = await node.call("CLUSTER", "SLOTS")
            except TimeoutError:
                failures.append(
                    ServerAway(
                        f"{node.address.shown}: cannot be reached: "
                        f"no answer in {NODE_ASK_TIMEOUT_SECONDS:g} s"
                    )
                )
            except ErrorReply as error:
                failures.append(ServerRefused(f"{error}; is it a cluster? If not, use redis://HOST:PORT/DB"))
            except ServerError as error:
                failures.append(error)
            else:
                if ranges:
                    return await self._apply_slots(ranges, node)
                failures.append(self._unavailable("no node owns any slot; is the cluster formed?"))
        raise next((failure for failure in failures if isinstance(failure, ServerRefused)), failures[-1])

    async def _apply_slots(self, ranges: list[Any], teller: Server) -> None:
        def named(node: list[Any]) -> Server:
            host = node[0].decode() if node[0] not in (None, b"", b"?") else teller.address.endpoint[0]
            return self._node((host, node[1]))

        owners: list[Server | None] = [None] * HASH_SLOT_COUNT
        present: set[tuple[str, int]] = set()
        for first, last, *nodes in ranges:
            servers = [named(node) for node in nodes]
            present.update(server.address.endpoint for server in servers)
            owners[first : last + 1] = [servers[0]] * (last + 1 - first)
        self._owners, self._is_stale, self._suspect = owners, False, None
        self._primaries = list({owner.address.endpoint: owner for owner in owners if owner}.values())
        for endpoint in self._nodes.keys() - present:
            await self._nodes.pop(endpoint).close()

    def _node(self, endpoint: tuple[str, int]) -> Server:
        if endpoint not in self._nodes:
            self._nodes[endpoint] = Server(self.address.at(*endpoint))
        return self._nodes[endpoint]

    def _in_turn(self) -> list[Server]:
        """The nodes to ask, in random order so that a wrong one is not asked forever; then the seeds."""
        seeds = [self._node(seed.endpoint) for seed in self.address.seeds]
        nodes = random.sample(list(self._nodes.values()), len(self._nodes))
        return sorted(nodes, key=lambda node: (node is self._suspect, node in seeds))

    def _unavailable(self, what: str) -> ServerAway:
        return ServerAway(f"{self.address.shown}: cannot be used now: {what}")


def slot_of(command: tuple[CommandArgument, ...]) -> int | None:
    """The slot of the command's key; None if any node can answer."""
    name = command[0]
    if name in _KEYLESS_COMMANDS or len(command) == 1:
        return None
    if name in _SCRIPT_COMMANDS:
        return _slot(command[3])
    if name in _STREAM_COMMANDS:
        streams = command[command.index("STREAMS") + 1 :]
        slots = {_slot(stream) for stream in streams[: len(streams) // 2]}
        if len(slots) != 1:
            raise RuntimeError(f"{name} of several slots; in a cluster each partition must be read by itself")
        return slots.pop()
    return _slot(command[2 if name in _SUBCOMMAND_KEY_COMMANDS else 1])


def _slot(key: CommandArgument) -> int:
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
