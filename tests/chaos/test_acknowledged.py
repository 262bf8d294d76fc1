"""What was acknowledged is there afterwards, whatever was killed: many rounds under load, on sentinels and on a cluster.

Each round keeps the replicas of a primary from following it, so that it gets ahead of them, and then kills it. Without
a profile this loses jobs, and one test says so: a test that could not see a loss would prove nothing.
QBULL_CHAOS_ROUNDS=50 makes a campaign of it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import pytest

import qbull
from conftest import eventually, every_fault
from qbull.core.durability import Durability
from qbull.store.connection import server
from qbull.store.connection.cluster import slot_of
from topology import DURABLE, PASSWORD, Cluster, Node, Trio, raised_cluster, raised_trio, wait_for

ROUNDS = int(os.environ.get("QBULL_CHAOS_ROUNDS", "3"))
PRODUCERS = 8
AHEAD = 0.5
"""Seconds for which a primary may get ahead."""
REPLICATION = f"""\
user follower on >{PASSWORD} ~* &* +@all
primaryuser follower
"""

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(90 + 30 * ROUNDS)]


Fault = Literal["cut", "frozen", "stalled"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


@dataclass
class Ledger:
    acknowledged: list[str] = field(default_factory=list)
    unconfirmed: int = 0
    refused: list[str] = field(default_factory=list)
    away: int = 0


class Field:
    """Servers under fire."""

    url: str
    nodes: list[Node]

    def __init__(self, servers: Trio | Cluster) -> None:
        self.servers = servers
        self.url = servers.url
        self.nodes = servers.servers if isinstance(servers, Trio) else servers.nodes

    def primary(self, base: str) -> Node:
        """The one that has the partition."""
        if isinstance(self.servers, Trio):
            return self.servers.master()
        return self.servers.owner(slot_of(("GET", base)) or 0)

    def replicas(self, primary: Node) -> list[Node]:
        others = [node for node in self.nodes if not node.is_primary()]
        return [node for node in others if node.info("replication")["master_port"] == primary.port]

    def heal(self) -> None:
        for node in self.nodes:
            if not node.runs:
                node.start()
        wait_for(lambda: all(node.answers() for node in self.nodes), within=60)
        wait_for(self.servers.is_whole, within=60)


@contextmanager
def raised(kind: str, directory: Path) -> Iterator[Field]:
    raise_ = raised_trio if kind == "sentinel" else raised_cluster
    with raise_(directory, DURABLE + REPLICATION) as servers:
        yield Field(servers)


@asynccontextmanager
async def load(app: qbull.App, durability: Durability | None) -> AsyncIterator[Ledger]:
    """Producers that enqueue one job after the other, and go on whatever they are told."""
    ledger = Ledger()
    stop = asyncio.Event()

    @app.queue("orders", partitions=4).task
    async def take(order: str) -> None: ...

    async def produce(number: int) -> None:
        sent = 0
        while not stop.is_set():
            id = f"{number}-{sent}"
            sent += 1
            try:
                await take.options(id=id, durability=durability).enqueue(order=id)
            except qbull.NotConfirmed:
                ledger.unconfirmed += 1
            except qbull.ServerAway:
                ledger.away += 1
            except qbull.ServerRefused as error:
                ledger.refused.append(str(error))
                await asyncio.sleep(0.05)
            else:
                ledger.acknowledged.append(id)

    async with asyncio.TaskGroup() as group:
        for number in range(PRODUCERS):
            group.create_task(produce(number))
        yield ledger
        stop.set()


async def some_more(ledger: Ledger, many: int = 40) -> None:
    so_far = len(ledger.acknowledged)

    async def there() -> bool:
        return len(ledger.acknowledged) >= so_far + many

    await eventually(there, within=60)


async def strike(field: Field, base: str, fault: Fault) -> None:
    """Let a primary get ahead of its replicas, end it, and wait for the one that takes over."""
    primary = await asyncio.to_thread(field.primary, base)
    replicas = await asyncio.to_thread(field.replicas, primary)
    match fault:
        case "cut":
            primary.tell("ACL", "SETUSER", "follower", "off")
            primary.tell("CLIENT", "KILL", "TYPE", "REPLICA")
            await asyncio.sleep(AHEAD)
            primary.kill(signal.SIGKILL)
        case "frozen":
            for node in replicas:
                node.kill(signal.SIGSTOP)
            await asyncio.sleep(AHEAD)
            primary.kill(signal.SIGKILL)
            for node in replicas:
                node.kill(signal.SIGCONT)
        case "stalled":
            primary.kill(signal.SIGSTOP)
    await asyncio.to_thread(wait_for, lambda: field.primary(base) is not primary, 60)
    primary.kill(signal.SIGCONT)  # a stalled one wakes up, and still takes itself for the primary


async def lost(app: qbull.App, ledger: Ledger) -> list[str]:
    store = app._client().store
    settings = app.queues["orders"].settings
    kept: set[str] = set()
    for partition in await store.partitions(settings):
        kept |= {id.decode() for id in await store.server.call("HKEYS", partition.base + "index")}
    return sorted(set(ledger.acknowledged) - kept)


def report(what: str, ledger: Ledger, gone: list[str]) -> None:
    print(
        f"{what}: {len(ledger.acknowledged)} acknowledged, {ledger.unconfirmed} not confirmed, "
        f"{len(ledger.refused)} refused, {ledger.away} away, {len(gone)} lost",
        *set(ledger.refused),
        sep="\n  ",
        file=sys.stderr,
    )


@pytest.mark.parametrize("durability", ["replicated", "strict"])
@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_a_killed_primary_takes_no_acknowledged_job_with_it(
    kind: str, durability: Durability, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALL_TIMEOUT_SECONDS", 2.0)
    with raised(kind, tmp_path) as field:
        async with qbull.App(field.url) as app:
            async with load(app, durability) as ledger:
                for number in range(ROUNDS):
                    await some_more(ledger)
                    base = app._client().store.names.partition("orders", random.randrange(4))
                    await strike(field, base, FAULTS[number % len(FAULTS)])
                    await asyncio.to_thread(field.heal)
                await some_more(ledger)

            gone = await lost(app, ledger)
            report(f"{kind}, {durability}, {ROUNDS} primaries struck", ledger, gone)
            assert gone == []
            assert await every_fault(app._client().store) == []


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_without_a_profile_the_same_loses_jobs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALL_TIMEOUT_SECONDS", 2.0)
    with raised(kind, tmp_path) as field:
        async with qbull.App(field.url) as app:
            async with load(app, None) as ledger:
                await some_more(ledger)
                base = app._client().store.names.partition("orders", 0)
                await strike(field, base, "cut")
                await asyncio.to_thread(field.heal)

            gone = await lost(app, ledger)
            report(f"{kind}, no profile, 1 primary struck", ledger, gone)
            assert gone != []


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_strict_jobs_outlive_the_death_of_every_server(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALL_TIMEOUT_SECONDS", 2.0)
    with raised(kind, tmp_path) as field:
        async with qbull.App(field.url) as app:
            async with load(app, "strict") as ledger:
                for _ in range(ROUNDS):
                    await some_more(ledger)
                    for node in field.nodes:
                        node.kill(signal.SIGKILL)
                    await asyncio.to_thread(field.heal)
                await some_more(ledger)

            gone = await lost(app, ledger)
            report(f"{kind}, strict, all servers killed {ROUNDS} times", ledger, gone)
            assert gone == []
            assert await every_fault(app._client().store) == []
