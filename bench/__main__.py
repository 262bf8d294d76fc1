"""`python -m bench`: measure, print one table, write bench/out.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from bench.cluster import PARTS as CLUSTER_PARTS
from bench.cluster import ClusterPlan, measure_cluster
from bench.durable_peers import DURABLE_PEERS, measure_durable_peer
from bench.feature_rounds import FeatureRun
from bench.features import FEATURES
from bench.growth import GROWTH, grow
from bench.peers import PEERS, measure_peer
from bench.quiet import Repeater
from bench.rounds import BARS, Plan, Run
from bench.server import Server, open_server
from bench.table import features_table, growth_table, peers_table, table, weight_table
from bench.weight import WEIGHTS, weigh

PARTS = "floor features weight"
ALL_PEERS = (*PEERS, *DURABLE_PEERS)
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
        if options.growth:
            report_growth(options, plan, machine, grow(plan.rounds, options.quick, say, options.rows))
            return
        if options.cluster:
            cluster_plan = ClusterPlan.quick() if options.quick else ClusterPlan()
            found = measure_cluster(plan.rounds, cluster_plan, say, options.rows)
            report_cluster(options, plan, machine, found)
            return
        run = Run(server, plan, say)
        if "floor" in options.parts:
            run.all()
        with FeatureRun(server, plan.jobs, plan.rounds, say, options.rows, Repeater(plan.tries)) as features:
            if "features" in options.parts:
                features.all()
            weights = weigh(server, plan.rounds, say, options.rows) if "weight" in options.parts else {}
            peers = {name: beside_peer(server, features, name, say) for name in options.peers}
    report(options, plan, machine, run, features, weights, peers)


def beside_peer(
    server: Server, features: FeatureRun, name: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """The figures of a peer, and how many times more the row of qbull reaches that does the same."""
    say(f"peer {name}")
    found = measure_peer(server, name) if name in PEERS else measure_durable_peer(name)
    if "problem" not in found:
        beside = PEERS[name].beside if name in PEERS else "steps"
        reached = found.get("drain") or found["steps_per_s"]
        found |= {"beside": beside, "ratio": features.rate_of(beside) / reached}
    return found


def report(
    options: argparse.Namespace,
    plan: Plan,
    machine: dict[str, Any],
    run: Run,
    features: FeatureRun,
    weights: dict[str, Any],
    peers: dict[str, Any],
) -> None:
    """Write the file, print the tables."""
    out: dict[str, Any] = {"machine": machine, "rounds": plan.rounds, "jobs": plan.jobs}
    tables = []
    if "floor" in options.parts:
        medians, ratios = run.medians(), run.ratios()
        bars = {
            name: {bar.kind.replace(" ", "_"): bar.value, "verdict": bar.verdict(ratios[name])}
            for name, bar in BARS.items()
        }
        out |= {**medians, "ratios": ratios, "bars": bars, "disturbed": run.disturbed(), "all": run.figures}
        tables.append(table(medians, ratios))
    if found := features.figures():
        out |= {"features": found, "features_disturbed": features.disturbed, "versions": features.versions}
        tables.append(features_table(found))
    if weights:
        out["weight"] = weights
        tables.append(weight_table(weights))
    if peers:
        out["peers"] = peers
        tables.append(peers_table(peers))
    machine |= features.versions
    options.out.write_text(json.dumps(out, indent=2) + "\n")
    print("\n\n".join(tables))
    print(
        f"\n{plan.rounds} rounds of {plan.jobs:,} jobs; {', '.join(f'{k} {v}' for k, v in machine.items())}"
    )
    if options.quick:
        print("A quick run: it shows that the bench works, its figures mean nothing.")
    elif disturbed := [*run.disturbed(), *features.disturbed]:
        print(f"Do not trust these rows, because other programs used the machine: {'; '.join(disturbed)}")


def report_growth(
    options: argparse.Namespace,
    plan: Plan,
    machine: dict[str, Any],
    found: dict[str, dict[str, dict[str, Any]]],
) -> None:
    """Write the growth into the file beside what it has, print the table."""
    add_to_file(options.out, growth=found, growth_machine=machine)
    print(growth_table(found))
    print(f"\n{plan.rounds} rounds; {', '.join(f'{k} {v}' for k, v in machine.items())}")


def report_cluster(
    options: argparse.Namespace, plan: Plan, machine: dict[str, Any], found: dict[str, Any]
) -> None:
    """Write what a cluster and many workers cost into the file beside what it has, print the table."""
    add_to_file(options.out, cluster=found, cluster_machine=machine)
    print(weight_table(found["rows"]))
    print(f"\n{plan.rounds} rounds; {', '.join(f'{k} {v}' for k, v in machine.items())}")
    if options.quick:
        print("A quick run: it shows that the bench works, its figures mean nothing.")


def add_to_file(path: Path, **figures: Any) -> None:
    out = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**out, **figures}, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="qbull beside a hand-written loop")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3)")
    parser.add_argument("--jobs", type=int, help="jobs for each measurement (50,000)")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--parts", default=PARTS, help=f"what to measure ({PARTS})")
    parser.add_argument(
        "--rows", default="", help="only these rows of the features, the weight, the growth or the cluster"
    )
    parser.add_argument("--peers", default="", help=f"other libraries to measure: {' '.join(ALL_PEERS)}")
    parser.add_argument(
        "--growth", action="store_true", help="only the growth: the server's time for a job with much on it"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="only a cluster beside one server, idle workers and sharing"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the figures go (bench/out.json)")
    options = parser.parse_args()
    options.peers, options.parts, options.rows = (
        value.split() for value in (options.peers, options.parts, options.rows)
    )
    rows = GROWTH if options.growth else CLUSTER_PARTS if options.cluster else (*FEATURES, *WEIGHTS)
    if unknown := [row for row in options.rows if row not in rows]:
        parser.error(f"unknown rows: {' '.join(unknown)}; there are: {' '.join(rows)}")
    if unknown := [name for name in options.peers if name not in ALL_PEERS]:
        parser.error(f"unknown peers: {' '.join(unknown)}; there are: {' '.join(ALL_PEERS)}")
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
