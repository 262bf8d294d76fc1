"""The server of the run: an embedded Valkey with the settings that users get, and what it says of its work."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import redis

from qbull.embedded.server import EmbeddedServer


class Server:
    def __init__(self, socket: Path, password: str) -> None:
        self.url = f"unix://:{password}@{socket}?db=0"
        self.redis = redis.Redis(unix_socket_path=str(socket), password=password)
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
            server = Server(embedded.socket, embedded.password)
            with closing(server.redis):
                yield server
