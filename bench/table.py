"""What people see: tables of figures with ratios and goals, and one line for each peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.features import FEATURES
from bench.growth import GOAL, GROWTH
from bench.rounds import BARS, FIGURES

MEANING = {
    "enqueue_bulk": "jobs/s, as a list",
    "enqueue_concurrent": "jobs/s, one by one in 50 tasks; against the floor in bulk",
    "drain": "jobs/s, one worker process",
    "drain_2": "jobs/s, two worker processes",
    "drain_keyed": "jobs/s in order, 10 jobs for each key",
    "drain_distinct": "jobs/s in order, every job its own key",
    "drain_one_key": "jobs/s in order, one key",
    "drain_16": "jobs/s, 16 partitions",
    "drain_64": "jobs/s, 64 partitions; against qbull with one",
    "latency_p50_ms": "enqueue to start in an idle worker; floor: XADD to XREADGROUP",
    "latency_p99_ms": "the same, slowest 1 %",
    "bytes_per_job": "server memory for a waiting job, without its payload",
    "server_us_per_job": "server processor time, drain",
    "worker_us_per_job": "worker processor time, drain",
    "idle_commands_per_s": "an idle worker process, commands inside scripts too",
    "idle_64_commands_per_s": "the same with 64 partitions",
    "idle_cpu_percent": "an idle worker process, of one core",
    "flat_1m": "server time for a job with 1,000,000 waiting : with 10,000; needs an allocator, see docs/guides/embedded.md",
    "flat_1m_enqueue": "the same for enqueueing one",
    "look_1m_ms": "server time for counts and two pages with 1,000,000 waiting",
}
FEATURE_COLUMNS = "{:<20} {:>10} {:>7}  {:<21} {:>6} {:<6} {}"
COLUMNS = "{:<20} {:>10} {:>10} {:>7}  {:<15} {:<6} {}"
GROWTH_COLUMNS = "{:<50} {:>11} {:>7} {:>12}  {:<5} {}"
WEIGHT_COLUMNS = "{:<20} {:>10} {:<5} {:>7} {:<6} {}"
PEER_COLUMNS = "{:<20} {:>10} {:>10} {:>7}  {:<18} {}"


def table(medians: Mapping[str, Mapping[str, float]], ratios: Mapping[str, float]) -> str:
    bar_of = {bar.figure: (name, bar) for name, bar in BARS.items()}
    lines = [COLUMNS.format("", "floor", "qbull", "ratio", "bar", "", "").rstrip()]
    for figure in FIGURES:
        ratio = wanted = verdict = ""
        if figure in bar_of:
            name, bar = bar_of[figure]
            ratio = f"{ratios[name]:.2f}" if bar.of is not None else ""
            wanted, verdict = f"{bar.kind} {bar.value:g}", bar.verdict(ratios[name])
        floor, ours = medians["floor"][figure], medians["qbull"][figure]
        lines.append(
            COLUMNS.format(figure, number(floor), number(ours), ratio, wanted, verdict, MEANING[figure])
        )
    return "\n".join(lines)


def growth_table(growth: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    lines = [GROWTH_COLUMNS.format("us of the server for a job", "", "", "to the least", "goal", "").rstrip()]
    for name, sizes in growth.items():
        for shown, found in sizes.items():
            verdict = "ok" if found["ratio"] <= GOAL else "above"
            lines.append(
                GROWTH_COLUMNS.format(
                    GROWTH[name].meaning,
                    shown,
                    f"{found['server_us']:.2f}",
                    f"{found['ratio']:.2f}",
                    f"{GOAL:g}",
                    verdict,
                )
            )
    return "\n".join(lines)


def features_table(features: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [FEATURE_COLUMNS.format("", "jobs/s", "ratio", "beside", "goal", "", "")]
    for name, found in features.items():
        if "problem" in found:
            lines.append(f"{name:<20} {found['problem']}")
            continue
        beside = "" if found["beside"] == name or "goal_jobs_per_s" in found else found["beside"]
        goal = found.get("goal_jobs_per_s") or found["goal"]
        lines.append(
            FEATURE_COLUMNS.format(
                name,
                number(found["jobs_per_s"]),
                f"{found['ratio']:.2f}" if beside else "",
                beside,
                "" if goal is None else f"{goal:,g}",
                found["verdict"] or "",
                FEATURES[name].meaning + _waits(found),
            )
        )
    return "\n".join(line.rstrip() for line in lines)


def _waits(found: Mapping[str, Any]) -> str:
    if "p50_ms" not in found:
        return ""
    goal = f", goal {found['goal_p50_ms']:g}" if "goal_p50_ms" in found else ""
    return f"; p50 {found['p50_ms']:.1f} ms{goal}"


def weight_table(weights: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [WEIGHT_COLUMNS.format("", "qbull", "unit", "at most", "", "")]
    for name, found in weights.items():
        goal = "" if found["goal"] is None else f"{found['goal']:g}"
        shown = (number(found["value"]), found["unit"], goal, found["verdict"] or "")
        lines.append(WEIGHT_COLUMNS.format(name, *shown, found["meaning"]))
    return "\n".join(line.rstrip() for line in lines)


def peers_table(peers: Mapping[str, Mapping[str, Any]]) -> str:
    """Jobs a second, and how many times more the row of qbull reaches that does the same."""
    lines = [PEER_COLUMNS.format("", "enqueue", "drain", "qbull :", "row", "")]
    for name, found in peers.items():
        if "problem" in found:
            lines.append(f"{name:<20} {found['problem']}")
            continue
        enqueue = number(found["enqueue"]) if "enqueue" in found else ""
        reached, shown = number(found.get("drain") or found["steps_per_s"]), f"{found['ratio']:.1f}"
        how = f"{found['how']}; {found['version']}"
        lines.append(PEER_COLUMNS.format(name, enqueue, reached, shown, found["beside"], how))
    return "\n".join(line.rstrip() for line in lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
