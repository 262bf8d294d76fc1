"""`python -m bench.paired OLD`: another commit and this tree, side by side on one machine.

A whole run of the bench for each would compare two moments of the machine. Here both builds are there at once, each with a
server of its own. They enqueue and drain at the same time, so that whatever else happens on the machine slows both down alike.
Each round has new servers, because a process keeps the luck it had with its memory. Pings would disturb each other: one build sends
some for a tenth of a second, then the other. The median of the pairs shows the change. Each build measures itself with its own
bench, so the figures are those that both have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).parents[1]
JOBS = 90_000
DRAINS = {
    "drain": "'plain', JOBS, 1",
    "drain_64": "'plain-64', JOBS, 1",
    "drain_keyed": "'keyed', JOBS, JOBS // 10",
    "drain_distinct": "'keyed', JOBS, JOBS",
    "drain_one_key": "'keyed', JOBS, 1",
}
"""Kind, jobs and keys."""
ENQUEUES = {
    "enqueue_bulk": "measure.enqueue_bulk(server, qbull, JOBS // 3)",
    "enqueue_concurrent": "measure.enqueue_concurrent(server, qbull, JOBS // 3)",
}
LATENCY = "latency"
ROWS = [*DRAINS, *ENQUEUES, LATENCY]
"""A ratio above 1 is better in every row, also for latency."""
PING_SLICES = 32
SLICE_PINGS = 25
"""Pings of one build before it is the other's turn: the machine changes its speed within a second."""
MEASURER = """
import asyncio, json, sys, time
from contextlib import ExitStack
from bench import measure
from bench.ours import Ours
from bench.server import open_server
qbull, JOBS = Ours(), int(sys.argv[1])

class Pings:
    def open(self):
        server.clear()
        self.worker = stack.enter_context(measure.WorkerProcess(qbull.name, server.url, "ping", held=False))
        self.runner = stack.enter_context(asyncio.Runner())
        self.producing = qbull.producing(server.url, "ping")
        self.producer = self.runner.run(self.producing.__aenter__())
        self.sent = 0

    def send(self, count):
        async def send():
            for _ in range(count):
                await asyncio.sleep(0.003)  # the worker waits again
                await self.producer.ping(time.monotonic_ns())
        self.runner.run(send())
        self.sent += count
        deadline = time.monotonic() + measure.PATIENCE
        while (arrived := self.worker.pings()) < self.sent:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{arrived} of {self.sent} pings arrived")
            time.sleep(0.001)

    def close(self):
        self.runner.run(self.producing.__aexit__(None, None, None))
        with stack.pop_all():
            return self.worker.stop()["waits_ns"]

class Drains:
    def open(self, kind, jobs, keys):
        server.clear()
        measure.fill(server, qbull, kind, measure.calls(jobs, keys))
        self.kind = kind
        self.worker = stack.enter_context(measure.WorkerProcess(qbull.name, server.url, kind, held=True))

    def drain(self):
        drained = measure.run_until(server, qbull, self.kind, [self.worker], 0)
        with stack.pop_all():
            if self.worker.stop()["out_of_order"]:
                raise RuntimeError("jobs ran out of order")
        return drained.rate

pings, drains = Pings(), Drains()
with open_server() as server, ExitStack() as stack:
    for line in sys.stdin:
        print(json.dumps(eval(line)), flush=True)
"""


class Build:
    """A tree with a process that measures what it is told."""

    def __init__(self, tree: Path, jobs: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", MEASURER, str(jobs)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Build:
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, expression: str) -> Any:
        self.tell(expression)
        return self.answer(expression)

    def tell(self, expression: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def answer(self, expression: str) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"{expression}: a build ended with {self._process.wait()}; its message is above")
        return json.loads(line)


@dataclass(frozen=True)
class Paired:
    """What this tree reaches for each unit of the other one: the median, and the middle half of the pairs."""

    ratio: float
    low: float
    high: float
    pairs: int


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit in a directory of their own."""
    with tempfile.TemporaryDirectory(prefix="qbull-paired-") as made:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", made], input=archive, check=True)
        yield Path(made)


def compare(trees: tuple[Path, Path], row: str, rounds: int, jobs: int) -> Paired:
    """The other tree comes first. Each build goes first in every other round."""
    ratios: list[float] = []
    for number in range(rounds):
        with ExitStack() as stack:
            old, new = (stack.enter_context(Build(tree, jobs)) for tree in trees)
            order = (old, new) if number % 2 else (new, old)
            if row == LATENCY:
                waits = ping_in_turn(order)
                ratios.append(median(a / b for a, b in zip(waits[old], waits[new], strict=True)))
            elif row in DRAINS:
                ask_all(order, f"drains.open({DRAINS[row]})")
                rates = ask_all(order, "drains.drain()")
                ratios.append(rates[new] / rates[old])
            else:
                ask_all(order, ENQUEUES[row])  # the first time, modules and scripts are loaded
                rates = ask_all(order, ENQUEUES[row])
                ratios.append(rates[new] / rates[old])
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Paired(median(ratios), low, high, len(ratios))


def ask_all(builds: Sequence[Build], expression: str) -> dict[Build, Any]:
    """The answers of all builds, which work at the same time."""
    for build in builds:
        build.tell(expression)
    return {build: build.answer(expression) for build in builds}


def ping_in_turn(builds: Sequence[Build]) -> dict[Build, list[float]]:
    """The median latency of every slice, in nanoseconds. The first slices open connections and do not count."""
    for build in builds:
        build.ask("pings.open()")
    for number in range(PING_SLICES):
        for build in builds if number % 2 else reversed(builds):
            build.ask(f"pings.send({SLICE_PINGS})")
    return {
        build: [median(some) for some in batched(build.ask("pings.close()"), SLICE_PINGS)][2:]
        for build in builds
    }


def batched(waits: list[int], size: int) -> list[list[int]]:
    return [waits[at : at + size] for at in range(0, len(waits), size)]


def main() -> None:
    options = read_options()
    figures: dict[str, Any] = {}
    print(f"{'':20}{'new / old':>10}{'middle half':>16}{'pairs':>7}", flush=True)
    with checked_out(options.old) as tree:
        for row in options.rows:
            found = compare((tree, ROOT), row, options.rounds, options.jobs)
            figures[row] = found.ratio
            middle = f"{found.low:.2f} to {found.high:.2f}"
            print(f"{row:20}{found.ratio:10.3f}{middle:>16}{found.pairs:7}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench.paired", description="another commit and this tree, side by side"
    )
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=24, help="pairs for each row (24)")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs for each measurement ({JOBS:,})")
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS, help="only these rows")
    parser.add_argument("--out", type=Path, help="a file for the ratios, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
