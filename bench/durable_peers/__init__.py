"""Other systems with durable steps, each with a server of its own, made on demand in bench/.peers.

An adapter is one small file that runs in an environment of its own: `NAME.py STEPS CALLERS SECONDS` keeps CALLERS
workflows of STEPS steps running for some seconds and prints the steps a second. Each step is safe on disk before
the next one starts, as in the row `steps` of the features: PostgreSQL and Restate flush as they do by default.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from bench.features import CONCURRENCY, STEPS
from bench.peers import ENVIRONMENTS, PATIENCE, environment, problem_of, version_of
from bench.postgres_server import open_postgres
from bench.server import free_port, running

HERE = Path(__file__).parent
RESTATE_VERSION = "1.7.12"
SECONDS = 5.0

Variables = dict[str, str]


@dataclass(frozen=True)
class DurablePeer:
    packages: tuple[str, ...]
    package: str
    how: str
    backend: Callable[[], AbstractContextManager[Variables]]


def measure_durable_peer(name: str, seconds: float = SECONDS) -> dict[str, Any]:
    """`steps_per_s` and versions, or the `problem` in one line."""
    peer = DURABLE_PEERS[name]
    try:
        python = environment(name, peer.packages)
        with peer.backend() as variables:
            version = variables.pop("version")
            done = subprocess.run(
                [python, "-W", "ignore", HERE / f"{name}.py", str(STEPS), str(CONCURRENCY), str(seconds)],
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE,
            )
        return {
            "steps_per_s": float(done.stdout.split()[-1]),
            "version": f"{version_of(python, peer.package)}, {version}",
            "how": peer.how,
        }
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        return {"problem": problem_of(error)}


@contextmanager
def _postgres() -> Iterator[Variables]:
    with open_postgres() as postgres:
        yield {
            "BENCH_DATABASE": postgres.url(postgres.make_database()),
            "version": f"PostgreSQL {postgres.version}",
        }


@contextmanager
def _restate() -> Iterator[Variables]:
    binary = _install_restate()
    admin, ingress, port, fabric = (free_port() for _ in range(4))
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory:
        quiet = {"RESTATE_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1", "RESTATE_LOG_FILTER": "error"}
        places = {
            "RESTATE_BASE_DIR": directory,
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_BIND_PORT": str(fabric),
            "RESTATE_ADMIN__BIND_PORT": str(admin),
            "RESTATE_INGRESS__BIND_PORT": str(ingress),
        }
        with running([str(binary), "--no-logo"], Path(directory, "log"), {**os.environ, **quiet, **places}):
            address = f"http://127.0.0.1:{admin}"
            _wait_until_healthy(f"{address}/health")
            _wait_until_healthy(f"http://127.0.0.1:{ingress}/restate/health")
            yield {
                "BENCH_ADMIN": address,
                "BENCH_INGRESS": f"http://127.0.0.1:{ingress}",
                "BENCH_PORT": str(port),
                "version": f"server {RESTATE_VERSION}",
            }


def _install_restate() -> Path:
    """The server's binary from the package of this platform, which runs no script and depends on no other."""
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    package = f"@restatedev/restate-server-{sys.platform}-{machine}"
    home = ENVIRONMENTS / "restate" / "server"
    binary = home / "node_modules" / package / "bin" / "restate-server"
    if not binary.exists():
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", str(home)]
        subprocess.run(
            ["npm", "install", *options, f"{package}@{RESTATE_VERSION}"],
            env={**os.environ, "SCARF_ANALYTICS": "false", "DO_NOT_TRACK": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
    return binary


def _wait_until_healthy(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError), opener.open(address, timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{address} does not answer after {PATIENCE:g} s")


DURABLE_PEERS = {
    "dbos": DurablePeer(("dbos",), "dbos", "steps a second; coroutines on PostgreSQL with fsync", _postgres),
    "restate": DurablePeer(
        ("restate-sdk", "hypercorn", "httpx"),
        "restate-sdk",
        "steps a second; one server, a service behind Hypercorn",
        _restate,
    ),
}
