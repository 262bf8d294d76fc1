"""Where a campaign takes place: one server, a master with two replicas and sentinels, or a cluster of three and three.

Every server has a TCP proxy (proxy.py) before it, which clients, replicas and sentinels go through, a library in it that knows
what it has flushed (flushed.c), and, where disks are to be filled, a small disk of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import redis
from proxies import Proxies

from qbull.store.connection.cluster import slot_of
from topology import DURABLE, PASSWORD, Cluster, Node, Trio, _running, raised_cluster, raised_trio

Topology = Literal["single", "sentinel", "cluster"]
PROFILES = {"single": "durable", "sentinel": "replicated", "cluster": "strict"}
"""What an acknowledged job must survive there, if nothing else is asked for."""
DISK = 1536
"""Megabytes of a server's own disk."""
REPLICATION = f"""\
user follower on >{PASSWORD} ~* &* +@all
primaryuser follower
auto-aof-rewrite-min-size 32mb
hz 100
"""


@dataclass
class TestedServers:
    topology: Topology
    url: str
    nodes: list[Node]
    proxies: Proxies
    directory: Path
    servers: Trio | Cluster | None = None
    lacks: dict[str, str] = field(default_factory=dict)
    """What cannot be done here, and why."""

    def primaries(self) -> list[Node]:
        match self.servers:
            case Trio():
                return [self.servers.master()]
            case Cluster():
                return self.servers.primaries()
        return self.nodes

    def owners(self, bases: list[str]) -> list[int]:
        """The port of the primary that has each of these partitions, from one answer of the servers."""
        if isinstance(self.servers, Cluster):
            return [node.port for node in self.servers.owners(slot_of(("GET", base)) or 0 for base in bases)]
        return [self.primaries()[0].port] * len(bases)

    def replicas(self, primary: Node) -> list[Node]:
        others = [node for node in self.nodes if node is not primary and node.runs and not node.stopped]
        infos = [(node, node.info("replication")) for node in others]
        return [
            node for node, info in infos if info["role"] == "slave" and info["master_port"] == primary.shown
        ]

    def is_whole(self) -> bool:
        with suppress(redis.RedisError, OSError, LookupError, RuntimeError, KeyError):
            if not all(node.answers() for node in self.nodes):
                return False
            return self.servers is None or self.servers.is_whole()
        return False

    def loses_power(self, node: Node) -> None:
        """It is killed, and what it had not flushed is gone."""
        node.kill(signal.SIGKILL)
        if "power cut" in self.lacks:
            return
        for file in (node.directory / "appendonlydir").glob("*.incr.aof"):
            noted = node.directory / "flushed" / file.name
            flushed = int(noted.read_text()) if noted.exists() else 0
            with file.open("r+b") as log:
                log.truncate(flushed)

    def fill_disk(self, node: Node) -> None:
        with (node.directory / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            size = shutil.disk_usage(node.directory).free
            while size > 4096:  # the server writes, too: what no longer fits is halved
                try:
                    os.posix_fallocate(filler.fileno(), filler.tell(), size)
                    filler.seek(0, os.SEEK_END)
                except OSError:
                    size //= 2

    def empty_disk(self, node: Node) -> None:
        (node.directory / "filler").unlink(missing_ok=True)


@contextmanager
def raised(
    topology: Topology, directory: Path, seed: int, *, settings: str = DURABLE, disks: bool = False
) -> Iterator[TestedServers]:
    with ExitStack() as stack:
        proxies = Proxies(seed)
        stack.callback(proxies.close)
        lacks: dict[str, str] = {}
        directory.mkdir(parents=True, exist_ok=True)
        library = _library(directory, lacks)
        names = {"single": ["server"], "sentinel": [f"server{n}" for n in range(3)]}
        for name in names.get(topology, [str(n) for n in range(6)]):
            (directory / name).mkdir(parents=True)
            if disks:
                _mount(stack, directory / name, lacks)
            (directory / name / "flushed").mkdir()

        def prepare(node: Node) -> None:
            node.claim(proxies.before)
            if library is not None:
                node.environment = {
                    "LD_PRELOAD": str(library),
                    "FLUSHED": str(node.directory / "flushed"),
                }

        settings += REPLICATION
        match topology:
            case "single":
                node = Node(directory / "server", settings)
                prepare(node)
                stack.enter_context(_running([node]))
                url = f"redis://:{PASSWORD}@{node.place}/0"
                yield TestedServers(topology, url, [node], proxies, directory, None, lacks)
            case "sentinel":
                trio = stack.enter_context(raised_trio(directory, settings, prepare))
                yield TestedServers(topology, trio.url, trio.servers, proxies, directory, trio, lacks)
            case "cluster":
                cluster = stack.enter_context(raised_cluster(directory, settings, prepare))
                yield TestedServers(topology, cluster.url, cluster.nodes, proxies, directory, cluster, lacks)


def _library(directory: Path, lacks: dict[str, str]) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None:
        lacks["power cut"] = "no C compiler (cc)"
        return None
    made = directory / "flushed.so"
    source = Path(__file__).with_name("flushed.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def _mount(stack: ExitStack, place: Path, lacks: dict[str, str]) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "chaos", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        lacks["disk full"] = "this user may not mount a small disk"
        return
    stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
