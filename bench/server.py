"""The servers of the run, with their statistics.

An embedded Valkey as users get it, a server on loopback, a primary with a replica, and a cluster.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import redis

from qbull.embedded.server import EmbeddedServer, _find_server

START_TIMEOUT_SECONDS = 30.0
MAX_CLIENTS = 15_000
"""An idle worker keeps about ten connections, and a thousand workers more than a server takes by default."""
PRIMARIES = 3
HASH_SLOTS = 16384


class Counters(NamedTuple):
    """What a server has counted since its start; of a cluster, the sums over its primaries."""

    cpu_seconds: float
    commands: int
    """Commands inside scripts too."""
    sent: int
    """Commands that clients have sent: how often the server has read from a client."""
    received_bytes: int
    sent_bytes: int
    memory_bytes: int
    log_bytes: int
    """The size of the log on disk."""
    clients: int

    def since(self, before: Counters) -> Counters:
        return Counters(*(now - then for now, then in zip(self, before, strict=True)))

    @classmethod
    def total(cls, some: Iterable[Counters]) -> Counters:
        return cls(*map(sum, zip(*some, strict=True)))


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.redis = redis.Redis.from_url(url.partition("?replicas=")[0])
        _wait_until_up(self.redis)
        # A rewrite of the log would fall into one measurement and not into the next one.
        self.redis.config_set("auto-aof-rewrite-percentage", 0)

    @property
    def version(self) -> str:
        facts = self.redis.info("server")
        return f"{facts.get('server_name', 'redis')} {facts.get('valkey_version', facts['redis_version'])}"

    @property
    def allocator(self) -> str:
        """What it asks for memory, as it runs: what it was built with may have been replaced at its start."""
        maps = Path(f"/proc/{self.redis.info('server')['process_id']}/maps")
        loaded = maps.read_text() if maps.exists() else ""
        instead = (name for name in ("jemalloc", "tbbmalloc") if name in loaded)
        return next(instead, None) or str(self.redis.info("memory")["mem_allocator"])

    def clear(self) -> None:
        """Empty it, and its log on disk too."""
        self.redis.flushall()
        self.redis.bgrewriteaof()
        while self._is_rewriting():
            time.sleep(0.01)

    def cpu(self) -> float:
        """Seconds of processor time since its start."""
        facts = self.redis.info("cpu")
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])

    def memory(self) -> int:
        return int(self.redis.info("memory")["used_memory"])

    def commands(self) -> int:
        return int(self.redis.info("stats")["total_commands_processed"])

    def counters(self) -> Counters:
        """All of it by one command, which counts itself only afterwards."""
        facts = self.redis.info("cpu", "stats", "memory", "persistence", "clients")
        return Counters(
            float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"]),
            int(facts["total_commands_processed"]),
            int(facts["total_reads_processed"]),
            int(facts["total_net_input_bytes"]),
            int(facts["total_net_output_bytes"]),
            int(facts["used_memory"]),
            int(facts["aof_current_size"]),
            int(facts["connected_clients"]),
        )

    def calls(self) -> dict[str, int]:
        """How often each command was executed."""
        facts = self.redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(row["calls"]) for name, row in facts.items()}

    @property
    def nodes(self) -> list[Server]:
        return [self]

    def _is_rewriting(self) -> bool:
        facts = self.redis.info("persistence")
        return bool(facts["aof_rewrite_in_progress"] or facts["aof_rewrite_scheduled"])


class Cluster:
    """The primaries of a cluster. Its figures are sums over them."""

    def __init__(self, ports: list[int]) -> None:
        places = [f"127.0.0.1:{port}" for port in ports]
        self.url = f"redis+cluster://{','.join(places)}"
        self.nodes = [Server(f"redis://{place}/0") for place in places]
        _form_cluster(self.nodes, ports)
        self.redis = redis.RedisCluster.from_url(f"redis://{places[0]}/0")

    def cpu(self) -> float:
        return sum(node.cpu() for node in self.nodes)

    def counters(self) -> Counters:
        return Counters.total(node.counters() for node in self.nodes)

    def calls(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for node in self.nodes:
            total.update(node.calls())
        return dict(total)

    def close(self) -> None:
        self.redis.close()
        for node in self.nodes:
            node.redis.close()


@contextmanager
def open_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory:
        embedded = EmbeddedServer.open(Path(directory, "server"))
        with closing(embedded):
            server = Server(f"unix://:{embedded.password}@{embedded.socket}?db=0")
            with closing(server.redis):
                yield server


@contextmanager
def open_server_on_loopback() -> Iterator[Server]:
    """One server that is reached as the nodes of a cluster are."""
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory:
        port = free_port()
        with _running_valkey(port, Path(directory), []):
            server = Server(f"redis://127.0.0.1:{port}/0")
            with closing(server.redis):
                yield server


@contextmanager
def open_cluster() -> Iterator[Cluster]:
    """Three primaries on loopback, with the log on disk that the embedded server has."""
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory, ExitStack() as stack:
        ports = [free_port() for _ in range(PRIMARIES)]
        for port in ports:
            home = Path(directory, str(port))
            home.mkdir()
            options = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
            stack.enter_context(_running_valkey(port, home, [*options, "--cluster-port", str(free_port())]))
        yield stack.enter_context(closing(Cluster(ports)))


@contextmanager
def open_replicated_server() -> Iterator[Server]:
    """A primary and a replica on loopback, both with the log on disk that the embedded server has."""
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory, ExitStack() as stack:
        ports = [free_port(), free_port()]
        for name, port in zip(("primary", "replica"), ports, strict=True):
            home = Path(directory, name)
            home.mkdir()
            options = ["--replicaof", "127.0.0.1", str(ports[0])] if name == "replica" else []
            stack.enter_context(_running_valkey(port, home, options))
        server = Server(f"redis://127.0.0.1:{ports[0]}/0?replicas=1")
        with closing(server.redis):
            _wait_for_replica(server.redis)
            yield server


@contextmanager
def _running_valkey(port: int, home: Path, options: list[str]) -> Iterator[None]:
    command = [_find_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    log = ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"]
    clients = ["--maxclients", str(MAX_CLIENTS)]
    with running([*command, *log, *clients, *options], home / "log"):
        yield


@contextmanager
def running(command: list[str], log: Path, env: dict[str, str] | None = None) -> Iterator[None]:
    """A server process that writes to this log, and that is killed at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _form_cluster(nodes: list[Server], ports: list[int]) -> None:
    """Give each node its slots, introduce them to each other, and wait until all of them serve."""
    first = nodes[0].redis
    for number, node in enumerate(nodes):
        low, high = (HASH_SLOTS * n // len(nodes) for n in (number, number + 1))
        node.redis.execute_command("CLUSTER ADDSLOTSRANGE", low, high - 1)
        node.redis.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
    for node, port in zip(nodes[1:], ports[1:], strict=True):
        bus = node.redis.config_get("cluster-port")["cluster-port"]
        first.execute_command("CLUSTER MEET", "127.0.0.1", port, int(bus))
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    for node in nodes:
        while not _serves_whole(node, len(nodes)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster is not formed after {START_TIMEOUT_SECONDS:g} s")
            time.sleep(0.02)


def _serves_whole(node: Server, nodes: int) -> bool:
    state = node.redis.execute_command("CLUSTER INFO")
    return state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == nodes


def _wait_until_up(server: redis.Redis) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            server.ping()
        except redis.RedisError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _wait_for_replica(primary: redis.Redis) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(redis.RedisError):
            if primary.info("replication").get("slave0", {}).get("state") == "online":
                return
        time.sleep(0.01)
    raise TimeoutError(f"the replica is not online after {START_TIMEOUT_SECONDS:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
