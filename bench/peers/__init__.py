"""Other libraries on the same server, each in a virtual environment of its own, made on demand in bench/.peers.

An adapter is one small file that runs inside that environment: `NAME.py enqueue JOBS` enqueues in the fastest way
that the library's users have and prints the jobs a second; `NAME.py work` is one worker. Concurrency is 50 for
coroutines, and the library's usual number of threads or processes for plain functions. Nobody is asked to count: how
many jobs are left is read from the server, and the clock runs from the first job that is gone to the last, so that
starting up is not measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench.server import Server

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".peers"
PATIENCE = 120.0
PLAIN_JOBS = 2_000
"""They enqueue one by one."""


@dataclass(frozen=True)
class Peer:
    """
    Args:
        packages: what pip installs; the first one's version is printed.
        how: how it is used, in a few words.
        left: how many jobs are not done.
        jobs: number of jobs that are measured.
        beside: the row of qbull that does the same.
        adapter: the file, and the environment that it runs in, if it is not the peer's name.
        mode: a word for the adapter, if it has several ways to work.
    """

    packages: tuple[str, ...]
    how: str
    left: Callable[[redis.Redis], int]
    jobs: int = 5_000
    beside: str = "plain"
    adapter: str = ""
    mode: str = ""


def _unread_and_pending(server: redis.Redis) -> int:
    """Of a stream that keeps its entries."""
    for group in server.xinfo_groups("taskiq"):
        return int(server.xlen("taskiq")) - int(group["entries-read"] or 0) + int(group["pending"])
    return int(server.xlen("taskiq"))


def _left_in_celery(server: redis.Redis) -> int:
    return int(server.llen("celery")) + int(server.hlen("unacked"))


PEERS = {
    "streaq": Peer(("streaq",), "enqueue_many", lambda s: int(s.xlen("streaq:default:queues:normal"))),
    "taskiq": Peer(("taskiq", "taskiq-redis"), "stream broker, 50 tasks enqueue", _unread_and_pending),
    "arq": Peer(("arq",), "50 tasks enqueue", lambda s: int(s.zcard("arq:queue"))),
    "saq": Peer(
        ("saq[redis,hiredis]", "typing_extensions"),
        "50 tasks enqueue",
        lambda s: int(s.zcard("saq:default:incomplete")),
    ),
    "dramatiq": Peer(
        ("dramatiq[redis]",),
        "plain functions, one by one, 8 threads, no results",
        lambda s: int(s.hlen("dramatiq:default.msgs")),
        jobs=PLAIN_JOBS,
        beside="threads",
    ),
    "huey": Peer(
        ("huey", "redis"),
        "plain functions, one by one, 8 threads, no results",
        lambda s: int(s.llen("huey.redis.bench")),
        jobs=PLAIN_JOBS,
        beside="threads",
    ),
    "rq": Peer(
        ("rq",),
        "plain functions, enqueue_many, a fork for each job",
        lambda s: int(s.llen("rq:queue:default")),
        1_000,
        beside="threads",
    ),
    "celery": Peer(
        ("celery[redis]",),
        "plain functions, one by one, two pool processes, no results",
        _left_in_celery,
        jobs=PLAIN_JOBS,
        beside="threads",
        mode="prefork",
    ),
    "celery_threads": Peer(
        ("celery[redis]",),
        "plain functions, one by one, 8 threads, no results",
        _left_in_celery,
        jobs=PLAIN_JOBS,
        beside="threads",
        adapter="celery",
        mode="threads",
    ),
}


def measure_peer(server: Server, name: str) -> dict[str, Any]:
    """`enqueue` and `drain` in jobs a second and the version, or the `problem` in one line."""
    peer = PEERS[name]
    try:
        python = environment(peer.adapter or name, peer.packages)
        server.clear()
        return {
            "enqueue": _enqueue(server, python, name),
            "drain": _drain(server, python, name),
            "version": version_of(python, peer.packages[0].partition("[")[0]),
            "how": peer.how,
        }
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        return {"problem": problem_of(error)}


def environment(name: str, packages: tuple[str, ...]) -> Path:
    """The Python that has these packages."""
    home = ENVIRONMENTS / name
    python = home / "bin" / "python"
    installed, wanted = home / "installed", " ".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        for command in ([sys.executable, "-m", "venv", str(home)], install):
            subprocess.run(command, check=True, capture_output=True, text=True)
        installed.write_text(wanted)
    return python


def version_of(python: Path, package: str) -> str:
    """Name and version of an installed package."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return f"{package} {done.stdout.strip()}"


def problem_of(error: Exception) -> str:
    """Why a peer could not be measured, in one line."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"{Path(error.cmd[0]).name} failed: {_last_line(error.stderr)}"
    return str(error)


def _enqueue(server: Server, python: Path, name: str) -> float:
    command, options = _adapter(server, python, name, "enqueue", str(PEERS[name].jobs))
    done = subprocess.run(command, **options, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return float(done.stdout.split()[-1])


def _drain(server: Server, python: Path, name: str) -> float:
    left, jobs = PEERS[name].left, PEERS[name].jobs
    if (found := left(server.redis)) != jobs:
        raise RuntimeError(f"{found} jobs are there where {jobs} were enqueued")
    command, options = _adapter(server, python, name, "work")
    with tempfile.TemporaryFile("w+") as words:
        worker = subprocess.Popen(
            command, **options, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
        )
        try:
            deadline = time.monotonic() + PATIENCE
            began, first = 0.0, jobs
            while (now_left := left(server.redis)) > 0:
                if first == jobs and now_left < jobs:
                    began, first = time.perf_counter(), now_left
                if worker.poll() is not None or time.monotonic() > deadline:
                    words.seek(0)
                    raise RuntimeError(f"{now_left} of {jobs} jobs are left: {_last_line(words.read())}")
                time.sleep(0.005)
            return first / (time.perf_counter() - began)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)  # its own session: the processes that it started, too
            worker.wait()


def _adapter(server: Server, python: Path, name: str, *words: str) -> tuple[list[Any], dict[str, Any]]:
    peer = PEERS[name]
    command = [python, "-W", "ignore", HERE / f"{peer.adapter or name}.py", *words]
    variables = {"BENCH_URL": server.url, "BENCH_MODE": peer.mode}
    return command, {"env": {**os.environ, **variables}, "stdin": subprocess.DEVNULL}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
