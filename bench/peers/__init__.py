"""Other libraries on the same server, each in a virtual environment of its own, made on demand in bench/.peers.

An adapter is one small file that runs inside that environment: `NAME.py enqueue JOBS` enqueues in the fastest way
that the library's users have and prints the jobs a second; `NAME.py work` is one worker process. Concurrency is 50
where the library has it. Nobody is asked to count: how many jobs are left is read from the server, and the clock runs
from the first job that is gone to the last, so that starting up is not measured.
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


@dataclass(frozen=True)
class Peer:
    packages: tuple[str, ...]
    how: str
    left: Callable[[redis.Redis], int]
    jobs: int = 5_000


def _unread_and_pending(server: redis.Redis) -> int:
    """Of a stream that keeps its entries."""
    for group in server.xinfo_groups("taskiq"):
        return int(server.xlen("taskiq")) - int(group["entries-read"] or 0) + int(group["pending"])
    return int(server.xlen("taskiq"))


PEERS = {
    "streaq": Peer(("streaq",), "enqueue_many", lambda s: int(s.xlen("streaq:default:queues:normal"))),
    "taskiq": Peer(("taskiq", "taskiq-redis"), "stream broker, 50 tasks enqueue", _unread_and_pending),
    "arq": Peer(("arq",), "50 tasks enqueue", lambda s: int(s.zcard("arq:queue"))),
    "saq": Peer(
        ("saq[redis,hiredis]", "typing_extensions"),
        "50 tasks enqueue",
        lambda s: int(s.zcard("saq:default:incomplete")),
    ),
    "rq": Peer(
        ("rq",), "enqueue_many, a fork for each job", lambda s: int(s.llen("rq:queue:default")), 1_000
    ),
    "celery": Peer(
        ("celery[redis]",),
        "one by one, one pool process, no results",
        lambda s: int(s.llen("celery")) + int(s.hlen("unacked")),
    ),
}


def measure_peer(server: Server, name: str) -> dict[str, Any]:
    """`enqueue` and `drain` in jobs a second, or the `problem` in one line."""
    try:
        python = environment(name, PEERS[name].packages)
        server.clear()
        return {
            "enqueue": _enqueue(server, python, name),
            "drain": _drain(server, python, name),
            "how": PEERS[name].how,
        }
    except subprocess.CalledProcessError as error:
        return {"problem": f"{Path(error.cmd[0]).name} failed: {_last_line(error.stderr)}"}
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"problem": str(error)}


def environment(name: str, packages: tuple[str, ...]) -> Path:
    """The Python that has these packages."""
    home = ENVIRONMENTS / name
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        for command in ([sys.executable, "-m", "venv", str(home)], install):
            subprocess.run(command, check=True, capture_output=True, text=True)
        (home / "installed").touch()
    return python


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
    command = [python, "-W", "ignore", HERE / f"{name}.py", *words]
    return command, {"env": {**os.environ, "BENCH_URL": server.url}, "stdin": subprocess.DEVNULL}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
