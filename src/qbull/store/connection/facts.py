"""Facts: the replication state of a primary and its replicas, for the judgement in core/durability.py.

The expected number of replicas is never the number that is connected: that one shrinks when a replica is
lost. A cluster and sentinels know it, down replicas included; for a single server it is in the address
(`?replicas=N`). Each replica is asked which primary it follows, because the primary also counts tools that
read its stream like a replica.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from qbull.core.durability import NodeFacts, ReplicationFacts
from qbull.errors import ServerAway, ServerError
from qbull.store.connection.address import Address
from qbull.store.connection.requirements import is_loading, read_info, server_settings
from qbull.store.connection.sentinel import SentinelServer
from qbull.store.connection.server import Conversation, Server

REPLICA_ASK_TIMEOUT_SECONDS = 2.0
"""Seconds for a replica to answer."""
WAITAOF_MIN_VERSION = (7, 2)

ReplicaLinks = frozenset[tuple[str, int]]
_DURABILITY_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite")


async def facts_of(talk: Conversation, *, replicas: bool) -> ReplicationFacts:
    """The facts about the primary of this conversation, and about its replicas if these are wanted."""
    info = await read_info(talk)
    address = talk.server.address
    if is_loading(info):
        raise ServerAway(f"{address.shown}: the server is loading its dataset")
    settings = await server_settings(talk, *_DURABILITY_SETTINGS, "cluster-allow-replica-migration")
    primary = _node_facts(address.shown, info, settings)
    version = tuple(int(n) for n in re.findall(r"\d+", info.get("redis_version", "0"))[:2])
    has_waitaof = version >= WAITAOF_MIN_VERSION
    if not replicas:
        return ReplicationFacts(primary, has_waitaof=has_waitaof)
    known = await _known_replicas(talk, info)
    expected = max(address.replicas or 0, len(known)) if known is not None else address.replicas
    places = known if known is not None else _connected(info)
    looks = [_replica_facts(address.at(*place), info.get("master_replid", "")) for place in places]
    found = await asyncio.gather(*looks) if expected else []
    return ReplicationFacts(
        primary,
        followers=tuple(node for node in found if isinstance(node, NodeFacts)),
        unhealthy=tuple(fault for fault in found if isinstance(fault, str)),
        expected=expected,
        links=links_in(await talk.call("ROLE")),
        migrates=settings.get("cluster-allow-replica-migration") == "yes"
        and info.get("cluster_enabled") == "1",
        has_waitaof=has_waitaof,
    )


def links_in(role: list[Any]) -> ReplicaLinks:
    """The replicas that are connected to a primary, from its answer to ROLE.

    None of them if it is no longer a primary.
    """
    if role[0] != b"master":
        return frozenset()
    return frozenset((host.decode(), int(port)) for host, port, _ in role[2])


async def _known_replicas(talk: Conversation, info: dict[str, str]) -> list[tuple[str, int]] | None:
    """The addresses of all replicas, as the cluster or the sentinels know them; None without either."""
    if isinstance(talk.server, SentinelServer):
        return await talk.server.replicas()
    if info.get("cluster_enabled") == "1":
        return _in_cluster((await talk.call("CLUSTER", "NODES")).decode())
    return None


def _in_cluster(nodes: str) -> list[tuple[str, int]]:
    rows = [line.split(" ") for line in nodes.splitlines() if line]
    me = next(row[0] for row in rows if "myself" in row[2])
    return [_endpoint(row[1]) for row in rows if row[3] == me]


def _endpoint(written: str) -> tuple[str, int]:
    """Parse HOST:PORT@BUS, which a comma and a name may follow."""
    place, _, name = written.partition(",")
    host, _, port = place.partition("@")[0].rpartition(":")
    return name.partition(",")[0] or host, int(port)


def _connected(info: dict[str, str]) -> list[tuple[str, int]]:
    rows = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
    pairs = [dict(pair.split("=", 1) for pair in row.split(",")) for row in rows]
    return [(pair["ip"], int(pair["port"])) for pair in pairs]


async def _replica_facts(address: Address, history: str) -> NodeFacts | str:
    """A replica that follows this history, or the reason why it does not."""
    host, port = address.endpoint
    shown = f"{host}:{port}"
    server = Server(address)
    try:
        async with asyncio.timeout(REPLICA_ASK_TIMEOUT_SECONDS):
            info = await read_info(server)
            settings = await server_settings(server, *_DURABILITY_SETTINGS)
    except TimeoutError:
        return f"{shown} does not answer"
    except ServerError as error:
        return shown + str(error).removeprefix(address.shown)
    finally:
        await server.close()
    if is_loading(info):
        return f"{shown} is loading its dataset"
    if info.get("role") != "slave":
        return f"{shown} is no replica"
    if info.get("master_link_status") != "up":
        return f"{shown} has no link to its primary, or is not in step yet"
    if info.get("master_replid") != history:
        return f"{shown} follows another primary"
    return _node_facts(shown, info, settings)


def _node_facts(shown: str, info: dict[str, str], settings: dict[str, str]) -> NodeFacts:
    skips = settings.get("no-appendfsync-on-rewrite")
    return NodeFacts(
        shown,
        aof=info.get("aof_enabled") == "1",
        fsync=settings.get("appendfsync"),
        skips_on_rewrite=None if skips is None else skips == "yes",
        failing=info.get("aof_last_write_status", "ok") != "ok",
    )
