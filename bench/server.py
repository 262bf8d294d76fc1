"""The servers of the run, with their statistics: an embedded Valkey as users get it, and a primary with a replica."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import redis

from qbull.embedded.server import EmbeddedServer, _find_server

START_TIMEOUT_SECONDS = 30.0


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

    def _is_rewriting(self) -> bool:
        facts = self.redis.info("persistence")
        return bool(facts["aof_rewrite_in_progress"] or facts["aof_rewrite_scheduled"])


@contextmanager
def open_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory:
        embedded = EmbeddedServer.open(Path(directory, "server"))
        with closing(embedded):
            server = Server(f"unix://:{embedded.password}@{embedded.socket}?db=0")
            with closing(server.redis):
                yield server


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
    with running([*command, *log, *options], home / "log"):
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
