"""The nemesis: one fault after the other, of kinds and in an order that the seed decides.

Three lines of faults go on side by side: against the workers and producers, against connections, against servers. Each run has
only some of the kinds, drawn from the seed, because faults that always come together hide each other. Every fault is
written down with when it began and ended. When it stops, it heals what it has harmed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis
from fleet import MIN_IDLE, Fleet, Member
from history import Book
from tested_servers import TestedServers

from topology import Cluster, Node, Trio

PEOPLE = (
    "kill process", "kill process", "kill pod", "stop process", "stop pod", "restart pod", "kill sender", "stop sender",
    "clock", "kill payer",
)  # fmt: skip
LINES = ("slow", "cut", "swallow", "deaf", "hole", "client kill", "script flush", "client pause")
SERVERS: dict[str, tuple[str, ...]] = {
    "single": ("kill server", "power cut", "stop server", "rewrite", "out of memory", "disk full"),
    "sentinel": (
        "kill server", "stop server", "rewrite", "out of memory", "disk full", "manual failover", "kill replica",
        "ahead", "stop replica", "restart all",
    ),
    "cluster": (
        "kill server", "stop server", "rewrite", "out of memory", "disk full", "manual failover", "kill replica",
        "ahead", "stop replica", "power cut of all",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """How often the faults of a line come: so many seconds from one to the next on average, and never before so many jobs
    were begun since the one before: on a slow machine nothing would ever be done otherwise."""

    seconds: float
    jobs: int


PACES = (Pace(1.2, 1_500), Pace(0.7, 1_000), Pace(8.0, 5_000))
"""Of workers and producers, connections, servers."""


class Nemesis:
    """`progress` says how many jobs were begun."""

    def __init__(
        self, tested: TestedServers, fleet: Fleet, book: Book, seed: int, progress: Callable[[], int],
        paces: tuple[Pace, ...], only: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._tested = tested
        self._fleet = fleet
        self._book = book
        self._seed = seed
        self._progress = progress
        self._paces = paces
        self.counts: Counter[str] = Counter()
        self._luck = random.Random(f"{seed}-kinds")
        lacks = {**tested.lacks, **fleet.lacks}
        self.skipped = lacks
        self.kinds = [
            [
                kind
                for kind in (kinds if only else self._some(kinds))
                if kind not in lacks and kind in (only or kinds)
            ]
            for kinds in (PEOPLE, LINES, SERVERS[tested.topology])
        ]

    def _some(self, kinds: tuple[str, ...]) -> list[str]:
        """About three quarters of the kinds, never less than half."""
        return self._luck.sample(kinds, self._luck.randint(max(len(kinds) // 2, 1), len(kinds)))

    async def rage(self, over: Callable[[], bool]) -> None:
        deeds = (self._hit_people, self._hit_lines, self._hit_servers)
        lines = [
            asyncio.create_task(self._line(name, kinds, pace, deed, over))
            for name, kinds, pace, deed in zip("pls", self.kinds, self._paces, deeds, strict=True)
        ]
        try:
            await asyncio.gather(*lines)
        finally:
            for line in lines:
                line.cancel()
            await self.heal()

    async def _line(
        self, name: str, kinds: list[str], pace: Pace,
        deed: Callable[[str, random.Random], Awaitable[dict[str, Any] | None]], over: Callable[[], bool],
    ) -> None:  # fmt: skip
        luck = random.Random(f"{self._seed}-{name}")
        deck: list[str] = []
        enough = 0
        while kinds and not over():
            await asyncio.sleep(luck.uniform(0.3, 1.7) * pace.seconds)
            while self._progress() < enough and not over():
                await asyncio.sleep(0.1)
            enough = self._progress() + pace.jobs
            deck = deck or luck.sample(kinds, len(kinds))
            kind = deck.pop()
            began = time.monotonic_ns()
            try:
                facts = await deed(kind, luck)
            except (redis.RedisError, OSError, LookupError, AssertionError, RuntimeError) as error:
                # a server that just died, or has another role by now: that is chaos, too
                self._book.say(kind=kind, began=began, missed=repr(error)[:300])
                continue
            if facts is not None:
                self.counts[kind] += 1
                self._book.say(kind=kind, began=began, ended=time.monotonic_ns(), **facts)

    # Workers and producers.

    async def _hit_people(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
        pod, sender = luck.choice(self._fleet.pods), luck.choice(self._fleet.senders)
        match kind:
            case "kill process":
                return await self._kill_process(pod, luck)
            case "kill pod":
                if not pod.runs:
                    return None
                pids = pod.children()
                pod.kill()
                at = time.monotonic_ns()
                await asyncio.sleep(luck.uniform(0.0, 2.0))
                pod.start()
                return {"pids": pids, "at_ns": at}
            case "stop process":
                children = pod.children()
                if not children:
                    return None
                pid = luck.choice(children)
                return await self._freeze(lambda what: _signal(pid, what), luck, [pid])
            case "stop pod":
                return await self._freeze(pod.send, luck, pod.children())
            case "restart pod":
                return await self._restart(pod, luck)
            case "kill sender":
                sender.kill()
                sender.start()
                return {}
            case "stop sender":
                return await self._freeze(sender.send, luck, [])
            case "clock":
                member = luck.choice(self._fleet.all)
                self._fleet.set_clock(member, luck.choice((0, 3600, -3600, luck.randint(-90, 90))))
                return {"member": member.name}
            case "kill payer":
                if not self._fleet.payers:
                    return None
                self._fleet.payers[0].kill()
                self._fleet.payers[0].start()
                return {}
        raise LookupError(kind)

    async def _kill_process(self, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        children = pod.children()
        if not children:
            return None
        pid = luck.choice(children)
        _signal(pid, signal.SIGKILL)
        return {"pids": [pid], "at_ns": time.monotonic_ns()}

    async def _freeze(
        self, send: Callable[[signal.Signals], None], luck: random.Random, pids: list[int]
    ) -> dict[str, Any]:
        """Mostly for less than it takes to be called dead, sometimes for longer."""
        send(signal.SIGSTOP)
        try:
            await asyncio.sleep(luck.choice((0.1, 0.4, 1.0, luck.uniform(1.0, 2.5) * MIN_IDLE)))
        finally:
            send(signal.SIGCONT)
        return {"frozen": pids}

    async def _restart(self, pod: Member, luck: random.Random) -> dict[str, Any] | None:
        """As a deploy does it, but not always with the patience to wait."""
        if not pod.runs or not pod.children():
            return None
        assert pod.process is not None
        pids = pod.children()
        pod.wanted = False
        with suppress(ProcessLookupError):
            os.kill(pod.process.pid, signal.SIGTERM)
        try:
            code: int | str = await asyncio.wait_for(_ended(pod), luck.choice((15.0, 15.0, 0.3)))
        except TimeoutError:
            code = "killed"
            pod.kill()
        at = time.monotonic_ns()
        pod.start()
        return {"code": code, "pids": pids if code == "killed" else [], "at_ns": at}

    # Connections.

    async def _hit_lines(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
        target = await asyncio.to_thread(lambda: luck.choice(self._tested.primaries()))
        if not target.runs or target.stopped:
            return None
        match kind:
            case "client kill":
                await self._tell(
                    target, "CLIENT", "KILL", "TYPE", luck.choice(("normal", "normal", "pubsub"))
                )
            case "script flush":
                await self._tell(target, "SCRIPT", "FLUSH")
            case "client pause":
                await self._tell(
                    target, "CLIENT", "PAUSE", luck.randint(20, 500), luck.choice(("WRITE", "ALL"))
                )
            case _:
                seconds = luck.choice((0.1, 0.3, 0.6, luck.uniform(0.5, 4.0)))
                share = luck.choice((0.1, 0.25, 0.5, 1.0 if seconds < 1 else 0.25))
                order = {"mood": kind, "target": target.port, "seconds": seconds, "share": share}
                self._tested.proxies.tell(**order, delay=luck.uniform(0.005, 0.15))
                if kind not in ("cut", "swallow"):
                    await asyncio.sleep(seconds)
                return {"server": target.port, "share": share}
        return {"server": target.port}

    # Servers.

    async def _hit_servers(self, kind: str, luck: random.Random) -> dict[str, Any] | None:
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

    async def heal(self) -> None:
        """Nothing is frozen, dead or out of place any more."""
        for member in self._fleet.all:
            member.send(signal.SIGCONT)
            self._fleet.set_clock(member, 0)
        for node in self._tested.nodes:
            node.kill(signal.SIGCONT)
            self._tested.empty_disk(node)
        await self._until_whole(120.0)
        for node in self._tested.nodes:
            await self._tell(node, "CONFIG", "SET", "maxmemory", 0)


def _signal(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


async def _ended(member: Member) -> int:
    assert member.process is not None
    while member.runs:
        await asyncio.sleep(0.02)
    return int(member.process.returncode)
