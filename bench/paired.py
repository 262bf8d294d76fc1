"""`python -m bench.paired OLD`: another commit and this tree, in turn on one machine.

A whole run of the bench for each would compare two moments of the machine. Here both builds are there at once, each with a
server of its own, and every figure is taken from one and then at once from the other. Drains and pings are cut into slices of about
a tenth of a second, because the machine changes its speed within a second. The median of the pairs shows the change. Each build
measures itself with its own bench, so the figures are those that both have.
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
"""Drained in slices: kind, jobs and keys."""
DRAIN_SLICES = 12
WHOLE = {
    "enqueue_bulk": "measure.enqueue_bulk(server, qbull, JOBS // 3)",
    "enqueue_concurrent": "measure.enqueue_concurrent(server, qbull, JOBS // 9)",
}
"""Measured as a whole."""
LATENCY = "latency"
ROWS = [*DRAINS, *WHOLE, LATENCY]
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

    def drain_slice(self, count):
        left = qbull.left(server.redis, self.kind) - count
        if left < 0:
            return None  # earlier slices have taken a few jobs more than asked for
        drained = measure.run_until(server, qbull, self.kind, [self.worker], left)
        self.worker.hold()
        time.sleep(0.05)  # what is on its way arrives
        return drained.rate

    def close(self):
        with stack.pop_all():
            if self.worker.stop()["out_of_order"]:
                raise RuntimeError("jobs ran out of order")

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
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
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


def compare(old: Build, new: Build, row: str, rounds: int, jobs: int) -> Paired:
    """Each build goes first in every other round."""
    ratios: list[float] = []
    for number in range(rounds):
        order = (old, new) if number % 2 else (new, old)
        if row == LATENCY:
            waits = ping_in_turn(order)
            ratios.append(median(a / b for a, b in zip(waits[old], waits[new], strict=True)))
        elif row in DRAINS:
            rates = drain_in_turn(order, DRAINS[row], jobs)
            ratios += [b / a for a, b in zip(rates[old], rates[new], strict=True)]
        else:
            reached = {build: build.ask(WHOLE[row]) for build in order}
            ratios.append(reached[new] / reached[old])
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Paired(median(ratios), low, high, len(ratios))


def drain_in_turn(builds: Sequence[Build], what: str, jobs: int) -> dict[Build, list[float]]:
    """The rate of each slice but the first, whose jobs were fetched before it began."""
    for build in builds:
        build.ask(f"drains.open({what})")
    rates: dict[Build, list[float]] = {build: [] for build in builds}
    for number in range(DRAIN_SLICES):
        slices = {
            build: build.ask(f"drains.drain_slice({jobs * 2 // (DRAIN_SLICES * 3)})")
            for build in (builds if number % 2 else reversed(builds))
        }
        if None in slices.values():
            break
        for build, rate in slices.items():
            rates[build].append(rate)
    for build in builds:
        build.ask("drains.close()")
    return {build: some[1:] or some for build, some in rates.items()}


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
    with checked_out(options.old) as tree, ExitStack() as stack:
        old, new = (stack.enter_context(Build(one, options.jobs)) for one in (tree, ROOT))
        for row in options.rows:
            found = compare(old, new, row, options.rounds, options.jobs)
            figures[row] = found.ratio
            middle = f"{found.low:.2f} to {found.high:.2f}"
            print(f"{row:20}{found.ratio:10.3f}{middle:>16}{found.pairs:7}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench.paired", description="another commit and this tree, in turn"
    )
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=24, help="pairs for each row (24)")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs for each measurement ({JOBS:,})")
    parser.add_argument("--rows", nargs="+", default=ROWS, choices=ROWS, help="only these rows")
    parser.add_argument("--out", type=Path, help="a file for the ratios, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
