"""Weight: processor time of imports and short commands, and the memory of an idle worker.

Processor time is that of a whole process, user and system, as the kernel counts it for its parent. The process has
compiled files, because each command runs once before it is measured. The median of some runs counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.server import Server

RUNS = 5
TIMEOUT_SECONDS = 60.0
SCRIPTS = Path(sys.executable).parent
FIRST_USE = "import redis, qbull; qbull.App('redis://localhost').queue('mail')"


@dataclass(frozen=True)
class Weight:
    meaning: str
    unit: str
    goal: float | None
    measure: Callable[[Server, int], float]

    def figures(self, server: Server, rounds: int) -> dict[str, Any]:
        value = self.measure(server, rounds)
        verdict = None if self.goal is None else "ok" if value <= self.goal else "above"
        return {
            "value": value,
            "unit": self.unit,
            "goal": self.goal,
            "verdict": verdict,
            "meaning": self.meaning,
        }


def weigh(
    server: Server, rounds: int, say: Callable[[str], None], only: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """The figures of all rows, or of some."""
    found = {}
    for name, weight in WEIGHTS.items():
        if not only or name in only:
            found[name] = weight.figures(server, rounds)
            say(f"{name}: {found[name]['value']:.1f} {weight.unit}")
    return found


def import_ms(server: Server, rounds: int) -> float:
    return _above_redis("import redis, qbull", rounds)


def first_use_ms(server: Server, rounds: int) -> float:
    return _above_redis(FIRST_USE, rounds)


def help_ms(server: Server, rounds: int) -> float:
    return _median_ms([SCRIPTS / "qbull", "--help"], rounds)


def worker_pss_mb(server: Server, rounds: int) -> float:
    """Of the supervisor and its worker process, in the first seconds after the start."""
    server.clear()
    with idle_worker(server) as (worker, _):
        return sum(_pss_bytes(process) for process in _family(worker.pid)) / 1e6


def probe_ms(server: Server, rounds: int) -> float:
    server.clear()
    with idle_worker(server) as (_, variables):
        return _median_ms([SCRIPTS / "qbull-alive", "--ready"], rounds, variables)


WEIGHTS = {
    "import_ms": Weight("import qbull; above import redis, processor time", "ms", 60, import_ms),
    "first_use_ms": Weight("the same with an app and a queue", "ms", None, first_use_ms),
    "help_ms": Weight("qbull --help, processor time", "ms", 250, help_ms),
    "worker_pss_mb": Weight("an idle qbull worker with one process, PSS in all", "MB", 70, worker_pss_mb),
    "probe_ms": Weight("qbull-alive --ready, processor time", "ms", 50, probe_ms),
}


@contextmanager
def idle_worker(server: Server) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """`qbull worker` that is ready, and the variables that a probe of it needs."""
    with tempfile.TemporaryDirectory(prefix="qbull-bench-") as directory:
        variables = {**os.environ, "BENCH_URL": server.url, "TMPDIR": directory}
        worker = subprocess.Popen(
            [SCRIPTS / "qbull", "worker", "bench.weight_app:app", "--processes", "1", "--no-job-log"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            probe = [SCRIPTS / "qbull-alive", "--ready"]
            while subprocess.run(probe, env=variables, capture_output=True).returncode:
                if worker.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the idle worker is not ready")
                time.sleep(0.1)
            yield worker, variables
        finally:
            worker.terminate()
            worker.wait(TIMEOUT_SECONDS)


def _above_redis(code: str, rounds: int) -> float:
    """The median of the differences; the two take turns."""
    ours, redis = ([sys.executable, "-c", text] for text in (code, "import redis"))
    for command in (ours, redis):
        _cpu_ms(command)
    return median(_cpu_ms(ours) - _cpu_ms(redis) for _ in range(RUNS * rounds))


def _median_ms(command: Sequence[str | Path], rounds: int, variables: dict[str, str] | None = None) -> float:
    _cpu_ms(command, variables)
    return median(_cpu_ms(command, variables) for _ in range(RUNS * rounds))


def _cpu_ms(command: Sequence[str | Path], variables: dict[str, str] | None = None) -> float:
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} failed with {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


def _family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _pss_bytes(pid: int) -> int:
    """The process's share of its memory; pages that several processes share count in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} does not tell its memory")
