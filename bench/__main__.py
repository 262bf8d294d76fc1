"""`python -m bench`: measure, print one table, write bench/out.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from bench.peers import PEERS, measure_peer
from bench.rounds import BARS, Plan, Run
from bench.server import Server, open_server
from bench.table import peers_table, table

OUT = Path(__file__).with_name("out.json")


def main() -> None:
    options = read_options()
    plan = Plan.quick() if options.quick else Plan()
    plan = replace(plan, **{name: value for name in ("rounds", "jobs") if (value := getattr(options, name))})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {line}", file=sys.stderr, flush=True)

    with open_server() as server:
        machine = describe(server)
        run = Run(server, plan, say)
        run.all()
        peers = {}
        for name in options.peers:
            say(f"peer {name}")
            peers[name] = measure_peer(server, name)
    medians, ratios = run.medians(), run.ratios()
    out: dict[str, Any] = {
        **medians,
        "ratios": ratios,
        "bars": {
            name: {bar.kind.replace(" ", "_"): bar.value, "verdict": bar.verdict(ratios[name])}
            for name, bar in BARS.items()
        },
        "machine": machine,
        "rounds": plan.rounds,
        "jobs": plan.jobs,
        "disturbed": run.disturbed(),
        "all": run.figures,
        **({"peers": peers} if peers else {}),
    }
    options.out.write_text(json.dumps(out, indent=2) + "\n")
    print(table(medians, ratios))
    if peers:
        print("\n" + peers_table(peers))
    print(
        f"\n{plan.rounds} rounds of {plan.jobs:,} jobs; {', '.join(f'{k} {v}' for k, v in machine.items())}"
    )
    if options.quick:
        print("A quick run: it shows that the bench works, its figures mean nothing.")
    elif disturbed := run.disturbed():
        print(f"Not to be trusted, because others used the machine: {'; '.join(disturbed)}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="qbull beside a hand-written loop")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3)")
    parser.add_argument("--jobs", type=int, help="jobs for each measurement (50,000)")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--peers", default="", help=f"other libraries to measure: {' '.join(PEERS)}")
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go (bench/out.json)")
    options = parser.parse_args()
    options.peers = options.peers.split()
    if unknown := [name for name in options.peers if name not in PEERS]:
        parser.error(f"unknown peers: {' '.join(unknown)}; there are: {' '.join(PEERS)}")
    return options


def describe(server: Server) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "server": server.version,
        "allocator": server.allocator,
        "redis_py": redis.__version__,
        "load_at_start": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    main()
