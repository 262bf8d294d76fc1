"""Real clusters and sentinel trios on loopback, from the valkey-server that qbull brings along.

Formed by plain commands, without any cli. Every server is the leader of its own process group and dies with the test process.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from patience import pause_after
from qbull.embedded.server import _find_server

PASSWORD = "secret"
NODE_TIMEOUT_MS = 1500
SLOTS = 16384

COMMON = f"""\
bind 127.0.0.1
daemonize no
save ""
appendonly no
requirepass {PASSWORD}
masterauth {PASSWORD}
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
"""
DURABLE = COMMON.replace("appendonly no", "appendonly yes\nappendfsync always\nno-appendfsync-on-rewrite no")
CLUSTER = f"""\
cluster-enabled yes
cluster-config-file nodes.conf
cluster-node-timeout {NODE_TIMEOUT_MS}
cluster-replica-validity-factor 0
cluster-allow-replica-migration no
"""
SENTINEL = """\
bind 127.0.0.1
daemonize no
sentinel monitor jobs 127.0.0.1 {port} 2
sentinel auth-pass jobs {password}
sentinel down-after-milliseconds jobs 700
sentinel failover-timeout jobs 1000
"""
QUICK = ("info-period", "200", "ping-period", "300", "ask-period", "100", "publish-period", "200")
"""Sentinels ask and tell each other every few seconds; a test does not want to wait for that.

A replica counts as fit for five ping periods after its last INFO, which in a failover is asked for only once a second.
"""


@dataclass
class Node:
    """One valkey-server, with a directory of its own. It can be killed and started again."""

    directory: Path
    settings: str
    port: int = 0
    front: int = 0
    """The port that others are told of, where a proxy is before the server."""
    arguments: tuple[str, ...] = ()
    password: str | None = PASSWORD
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.shown}"

    @property
    def shown(self) -> int:
        return self.front or self.port

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self.password, socket_timeout=5, protocol=2)

    @property
    def version(self) -> tuple[int, int]:
        """The version of Redis whose commands it knows: an older server may be tried with QBULL_VALKEY_SERVER."""
        major, minor = self.info("server")["redis_version"].split(".")[:2]
        return int(major), int(minor)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.claim()
        config = self.directory / "server.conf"
        if not config.exists():
            config.write_text(f"port {self.port}\ndir {self.directory}\n{self.settings}")
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_find_server(), str(config), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def claim(self, front: Callable[[int], int] | None = None) -> None:
        """Choose its ports, once. `front` gives the port of a proxy before the one that it is given."""
        if self.port:
            return
        self.port, bus = free_port(), free_port()
        clustered = "cluster-enabled" in self.settings
        if clustered:
            self.settings += f"cluster-port {bus}\n"
        if front is not None:
            self.front = front(self.port)
            word = "cluster-announce-port" if clustered else "replica-announce-port"
            self.settings += f"{word} {self.front}\n"

    def tell(self, *command: Any) -> Any:
        with self.client as client:
            return client.execute_command(*command)

    def tell_when_up(self, *command: Any) -> Any:
        wait_for(self.answers)
        return self.tell(*command)

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.place} ended: {(self.directory / 'log').read_text()[-500:]}")
        with suppress(redis.RedisError, OSError):
            return bool(self.info("server")["process_id"] == self.process.pid)
        return False

    def info(self, section: str) -> dict[str, Any]:
        with self.client as client:
            return dict(client.info(section))

    def is_primary(self) -> bool:
        return bool(self.info("replication")["role"] == "master")

    def wait_for_replicas(self) -> None:
        """Until they have all that is written here by now."""
        written = self.info("replication")["master_repl_offset"]

        def have_it() -> bool:
            info = self.info("replication")
            return all(info[f"slave{n}"]["offset"] >= written for n in range(info["connected_slaves"]))

        wait_for(have_it)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.runs:  # the number of one that was waited for may be another one's by now
            assert self.process is not None
            os.killpg(self.process.pid, how)
            self.stopped = how == signal.SIGSTOP
            if how == signal.SIGKILL:
                self.process.wait()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Pair:
    """A primary with its replicas, which nobody watches over."""

    primary: Node
    replicas: list[Node]

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@{self.primary.place}/0?replicas={len(self.replicas)}"

    def wait_until_whole(self) -> None:
        wait_for(self.is_whole)

    def is_whole(self) -> bool:
        return all(self.is_linked(replica) for replica in self.replicas)

    def is_linked(self, replica: Node) -> bool:
        """Both ends say so: the primary says it before the replica has loaded what it got."""
        info = self.primary.info("replication")
        links = [info[f"slave{n}"] for n in range(info["connected_slaves"])]
        if replica.port not in [link["port"] for link in links if link["state"] == "online"]:
            return False
        return bool(replica.info("replication")["master_link_status"] == "up")


@dataclass
class Cluster:
    """Three primaries, and a replica for each."""

    nodes: list[Node]

    @property
    def url(self) -> str:
        seeds = ",".join(node.place for node in self.nodes[:3])
        return f"redis+cluster://:{PASSWORD}@{seeds}"

    def at(self, port: int) -> Node:
        return next(node for node in self.nodes if node.shown == port)

    def owner(self, slot: int) -> Node:
        """The primary that owns a slot, asked of a node that runs."""
        return self.owners([slot])[0]

    def owners(self, slots: Iterable[int]) -> list[Node]:
        """The primary that owns each of these slots, from one answer of one node."""
        ranges = self.ranges()
        found = []
        for slot in slots:
            ports = [primary[1] for first, last, primary, *_ in ranges if first <= slot <= last]
            if not ports:
                raise LookupError(f"no node owns slot {slot}")
            found.append(self.at(ports[0]))
        return found

    def primaries(self) -> list[Node]:
        return [self.at(port) for port in dict.fromkeys(range_[2][1] for range_ in self.ranges())]

    def replicas(self) -> list[Node]:
        primaries = self.primaries()
        return [node for node in self.nodes if node not in primaries]

    def ranges(self) -> list[Any]:
        for node in self.nodes:
            if node.runs and not node.stopped:
                with redis.Redis(port=node.port, password=PASSWORD, socket_timeout=5, protocol=2) as client:
                    client.set_response_callback("CLUSTER SLOTS", lambda reply, **_: reply)
                    ranges: list[Any] = client.execute_command("CLUSTER SLOTS")
                return ranges
        raise LookupError("no node runs")

    def heal(self) -> None:
        """Start what was killed, and wait until every primary has its replica again."""
        for node in self.nodes:
            if not node.runs:
                node.start()
        wait_for(lambda: all(node.answers() for node in self.nodes))
        wait_for(self.is_whole)
        for node in self.primaries():
            node.tell("FLUSHALL")
        for node in self.nodes:
            node.tell("SCRIPT", "FLUSH")
            node.tell("CONFIG", "RESETSTAT")

    def is_whole(self) -> bool:
        states = [_cluster_info(node) for node in self.nodes]
        if any(state["cluster_state"] != "ok" or state["cluster_known_nodes"] != "6" for state in states):
            return False
        infos = [node.info("replication") for node in self.nodes]
        served = [info["connected_slaves"] for info in infos if info["role"] == "master"]
        linked = [info["master_link_status"] for info in infos if info["role"] == "slave"]
        return served == [1, 1, 1] and linked == ["up"] * 3

    def move(self, slot: int, source: Node, target: Node, at_once: int = 1) -> Iterator[str]:
        """Move a slot name by name, or some names at once, as `redis-cli --cluster reshard` does; says after each step what it was."""
        target.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", source.tell("CLUSTER", "MYID"))
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", target.tell("CLUSTER", "MYID"))
        yield "begun"
        while names := source.tell("CLUSTER", "GETKEYSINSLOT", slot, at_once):
            source.tell("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "AUTH", PASSWORD, "KEYS", *names)
            yield "moved a name"
        yield "moved all"
        new = target.tell("CLUSTER", "MYID")
        target.tell("CLUSTER", "SETSLOT", slot, "NODE", new)
        source.tell("CLUSTER", "SETSLOT", slot, "NODE", new)
        for node in self.primaries():
            node.tell("CLUSTER", "SETSLOT", slot, "NODE", new)


@dataclass
class Trio:
    """A master with two replicas, and three sentinels that call it "jobs"."""

    servers: list[Node]
    sentinels: list[Node] = field(default_factory=list)

    @property
    def url(self) -> str:
        seeds = ",".join(node.place for node in self.sentinels)
        return f"redis+sentinel://:{PASSWORD}@{seeds}/jobs/0"

    def master(self) -> Node:
        """As the first sentinel that runs says."""
        sentinel = next(node for node in self.sentinels if node.runs)
        _, port = sentinel.tell("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "jobs")
        return next(node for node in self.servers if node.shown == int(port))

    def fails_over(self) -> bool:
        """Ask a sentinel for another master; it says no until it has heard enough of the replicas."""
        with suppress(redis.ResponseError):
            return bool(self.sentinels[0].tell("SENTINEL", "FAILOVER", "jobs"))
        return False

    def is_whole(self) -> bool:
        """All sentinels know each other and both replicas, which follow the master."""
        for sentinel in self.sentinels:
            facts = sentinel.info("sentinel")["master0"]
            if (facts["status"], facts["slaves"], facts["sentinels"]) != ("ok", 2, 3):
                return False
        infos = [node.info("replication") for node in self.servers]
        return [info.get("master_link_status", "up") for info in infos] == ["up"] * 3


@contextmanager
def raised_pair(
    directory: Path, replicas: int = 1, environment: dict[str, str] | None = None
) -> Iterator[Pair]:
    """Servers that flush every write to the disk before they answer."""
    first, *others = nodes = [Node(directory / f"server{n}", DURABLE) for n in range(1 + replicas)]
    for node in nodes:
        (node.directory / "flushed").mkdir(parents=True)
        node.environment = {**(environment or {}), "FLUSHED": str(node.directory / "flushed")}
    with _running(nodes):
        for replica in others:
            replica.tell("REPLICAOF", "127.0.0.1", first.port)
        pair = Pair(first, others)
        pair.wait_until_whole()
        yield pair


@contextmanager
def raised_cluster(
    directory: Path, settings: str = COMMON, prepare: Callable[[Node], object] = lambda node: None
) -> Iterator[Cluster]:
    nodes = [Node(directory / str(n), settings + CLUSTER) for n in range(6)]
    for node in nodes:
        prepare(node)
    with _running(nodes):
        first, *others = nodes
        for n, node in enumerate(nodes[:3]):
            low, high = SLOTS * n // 3, SLOTS * (n + 1) // 3 - 1
            node.tell("CLUSTER", "ADDSLOTSRANGE", low, high)
        for n, node in enumerate(nodes):
            node.tell("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        for node in others:
            first.tell("CLUSTER", "MEET", "127.0.0.1", node.port, _bus_port(node))
        wait_for(lambda: all(_cluster_info(node)["cluster_known_nodes"] == "6" for node in nodes))
        for primary, replica in zip(nodes[:3], nodes[3:], strict=True):
            wait_for(lambda p=primary, r=replica: _replicates(r, p))
        cluster = Cluster(nodes)
        wait_for(cluster.is_whole)
        yield cluster


@contextmanager
def raised_trio(
    directory: Path, settings: str = COMMON, prepare: Callable[[Node], object] = lambda node: None
) -> Iterator[Trio]:
    servers = [Node(directory / f"server{n}", settings) for n in range(3)]
    for node in servers:
        prepare(node)
    with _running(servers):
        for replica in servers[1:]:
            replica.tell("REPLICAOF", "127.0.0.1", servers[0].shown)
        wait_for(lambda: servers[0].info("replication")["connected_slaves"] == 2)
        settings = SENTINEL.format(port=servers[0].shown, password=PASSWORD)
        sentinels = [
            Node(directory / f"sentinel{n}", settings, arguments=("--sentinel",), password=None)
            for n in range(3)
        ]
        with _running(sentinels):
            for sentinel in sentinels:
                sentinel.tell("SENTINEL", "DEBUG", *QUICK)
            trio = Trio(servers, sentinels)
            wait_for(trio.is_whole)
            yield trio


@contextmanager
def _running(nodes: list[Node]) -> Iterator[None]:
    try:
        for node in nodes:
            node.start()
        wait_for(lambda: all(node.answers() for node in nodes))
        yield
    finally:
        for node in nodes:
            node.kill()


def wait_for(look: Callable[[], Any], within: float = 20.0) -> None:
    began = time.monotonic()
    while not look():
        if time.monotonic() > began + within:
            raise AssertionError(f"did not happen within {within} s")
        time.sleep(pause_after(time.monotonic() - began))


_given: dict[int, socket.socket] = {}


def free_port() -> int:
    """Below the range from which the kernel takes the ports of outgoing connections; never the same one twice.

    A port that is free now must still be free when the server has started, whatever other test processes do: a name
    that is bound for as long as this process lives says that it is given away.
    """
    while True:
        port = random.randint(10_000, 29_999)
        claim = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":
                claim.bind(f"\0qbull-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        if port not in _given:
            _given[port] = claim
            return port


def _bus_port(node: Node) -> int:
    return int(node.settings.rpartition("\ncluster-port ")[2].split()[0])


def _cluster_info(node: Node) -> dict[str, str]:
    with redis.Redis(port=node.port, password=PASSWORD, socket_timeout=5, protocol=2) as client:
        client.set_response_callback("CLUSTER INFO", lambda reply, **_: reply)
        text = client.execute_command("CLUSTER INFO")
    return dict(line.split(":", 1) for line in text.decode().splitlines())


def _replicates(replica: Node, primary: Node) -> bool:
    """It must have heard of the primary before."""
    with suppress(redis.ResponseError):
        return bool(replica.tell("CLUSTER", "REPLICATE", primary.tell("CLUSTER", "MYID")))
    return False


def _die_with_parent() -> None:
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGKILL))
