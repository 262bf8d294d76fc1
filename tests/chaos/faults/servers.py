"""Faults of servers: killed, stopped, cut from power, out of memory, out of disk, rewriting their file, failed over, slots moved."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import suppress
from typing import Any

import redis
from tested_servers import TestedServers

from qbull.store.connection.cluster import slot_of
from topology import Cluster, Node, Trio

SERVER_FAULTS: dict[str, tuple[str, ...]] = {
    "single": ("kill server", "power cut", "stop server", "rewrite", "out of memory", "disk full"),
    "sentinel": (
        "kill server", "stop server", "rewrite", "out of memory", "disk full", "manual failover", "kill replica",
        "ahead", "stop replica", "restart all",
    ),
    "cluster": (
        "kill server", "stop server", "rewrite", "out of memory", "disk full", "manual failover", "kill replica",
        "ahead", "stop replica", "power cut of all", "move slot",
    ),
}  # fmt: skip

NAMES_AT_ONCE = 20


class ServerFaults:
    """`bases` are the names of the partitions of "work", by which their slots are known, `others` those of other queues."""

    def __init__(self, tested: TestedServers, bases: list[str], others: list[str]) -> None:
        self._tested = tested
        self._bases = bases
        self._others = others
        self.lacks = dict(tested.lacks)

    async def strike(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
        await self._until_whole()
        primary = await asyncio.to_thread(lambda: luck.choice(self._tested.primaries()))
        facts: dict[str, Any] = {"server": primary.port}
        match kind:
            case "kill server":
                primary.kill(signal.SIGKILL)
                facts["at_ns"] = time.monotonic_ns()
                await self._after_death(primary, luck)
            case "power cut":
                await asyncio.to_thread(self._tested.loses_power, primary)
                primary.start()
            case "power cut of all" | "restart all":
                for node in self._tested.nodes:
                    if kind == "power cut of all":
                        self._tested.loses_power(node)
                    else:
                        node.kill(signal.SIGTERM)
                await asyncio.sleep(0.2)
                await self._start_dead()
                facts["server"] = 0
            case "stop server":
                primary.kill(signal.SIGSTOP)
                await asyncio.sleep(luck.choice((0.2, 0.6, luck.uniform(1.0, 4.0))))
                primary.kill(signal.SIGCONT)
            case "rewrite":
                await self._tell(primary, "BGREWRITEAOF")
            case "out of memory":
                used = (await asyncio.to_thread(primary.info, "memory"))["used_memory"]
                await self._tell(primary, "CONFIG", "SET", "maxmemory", used // 2)
                await asyncio.sleep(luck.uniform(0.2, 1.5))
                await self._tell(primary, "CONFIG", "SET", "maxmemory", 0)
            case "disk full":
                await self._fill(primary)
            case "manual failover":
                await self._fail_over(primary)
            case "kill replica" | "stop replica":
                replica = luck.choice(await asyncio.to_thread(self._tested.replicas, primary))
                facts["server"] = replica.port
                replica.kill(signal.SIGKILL if kind == "kill replica" else signal.SIGSTOP)
                await asyncio.sleep(luck.uniform(0.2, 2.0))
                replica.start() if kind == "kill replica" else replica.kill(signal.SIGCONT)
            case "ahead":
                await self._get_ahead(primary, luck)
            case "move slot":
                base = facts["base"] = luck.choice((luck.choice(self._bases), luck.choice(self._others)))
                if base in self._bases:
                    facts["partition"] = self._bases.index(base)
                await asyncio.to_thread(self._move_slot, base, luck)
            case _:
                raise LookupError(kind)
        return facts

    async def _after_death(self, node: Node, luck: random.Random) -> None:
        """Alone it is started again soon; where another one takes over it mostly comes back after that, sometimes before."""
        await asyncio.sleep(
            luck.uniform(0.0, 0.5) if self._tested.servers is None else luck.uniform(0.2, 5.0)
        )
        node.start()

    async def _fill(self, node: Node) -> None:
        """A server that flushes every write ends when its disk is full; it is started again when there is room."""
        await asyncio.to_thread(self._tested.fill_disk, node)
        try:
            until = time.monotonic() + 5
            while node.runs and time.monotonic() < until:
                await asyncio.sleep(0.02)
        finally:
            self._tested.empty_disk(node)
        if not node.runs:
            node.start()

    async def _fail_over(self, primary: Node) -> None:
        servers = self._tested.servers
        if isinstance(servers, Trio):
            await asyncio.to_thread(servers.fails_over)
        elif isinstance(servers, Cluster):
            replica = (await asyncio.to_thread(self._tested.replicas, primary))[0]
            await self._tell(replica, "CLUSTER", "FAILOVER")

    async def _get_ahead(self, primary: Node, luck: random.Random) -> None:
        """Its replicas do not hear of what it writes, then it dies: what it has alone is lost with it.

        That it lets nobody follow is in its memory only: it starts with what its file says.
        """
        await self._tell(primary, "ACL", "SETUSER", "follower", "off")
        try:
            await self._tell(primary, "CLIENT", "KILL", "TYPE", "REPLICA")
            await asyncio.sleep(luck.uniform(0.1, 0.6))
        finally:
            primary.kill(signal.SIGKILL)
        until = time.monotonic() + 15
        while time.monotonic() < until:
            with suppress(redis.RedisError, OSError, LookupError):
                if primary not in await asyncio.to_thread(self._tested.primaries):
                    break
            await asyncio.sleep(0.1)
        primary.start()

    async def _tell(self, node: Node, *command: Any) -> None:
        await asyncio.to_thread(node.tell, *command)

    async def _until_whole(self, within: float = 60.0) -> None:
        until = time.monotonic() + within
        await self._start_dead()
        while not await asyncio.to_thread(self._tested.is_whole):
            await self._start_dead()
            if time.monotonic() > until:
                raise RuntimeError("the servers did not come together again")
            await asyncio.sleep(0.1)

    async def _start_dead(self) -> None:
        for node in self._tested.nodes:
            if not node.runs:
                self._tested.empty_disk(node)
                node.start()

    def _move_slot(self, base: str, luck: random.Random) -> None:
        """Name by name to another primary, while everybody uses it. Other queues than "work" have a name for each job."""
        cluster = self._tested.servers
        assert isinstance(cluster, Cluster)
        slot = slot_of(("GET", base)) or 0
        source = cluster.owner(slot)
        target = luck.choice([node for node in cluster.primaries() if node is not source])
        for _ in cluster.move(slot, source, target, 1 if base in self._bases else NAMES_AT_ONCE):
            time.sleep(0.002)

    async def heal(self) -> None:
        """Nothing is frozen, dead or out of place any more."""
        for node in self._tested.nodes:
            node.kill(signal.SIGCONT)
            self._tested.empty_disk(node)
        await self._until_whole(120.0)
        for node in self._tested.nodes:
            await self._tell(node, "CONFIG", "SET", "maxmemory", 0)
