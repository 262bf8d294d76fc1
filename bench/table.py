"""What people see: one table of figures, ratios and bars, and one line for each peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.features import FEATURES
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
FEATURE_COLUMNS = "{:<20} {:>10} {:>7}  {:<18} {:>5} {:<6} {}"
COLUMNS = "{:<20} {:>10} {:>10} {:>7}  {:<15} {:<6} {}"


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


def features_table(features: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [FEATURE_COLUMNS.format("", "jobs/s", "ratio", "beside", "goal", "", "")]
    for name, found in features.items():
        goal, ratio = found["goal"], found["ratio"]
        verdict = "" if goal is None else "ok" if ratio >= goal else "below"
        meaning = FEATURES[name].meaning + (f"; p50 {found['p50_ms']:.1f} ms" if "p50_ms" in found else "")
        beside = "" if found["beside"] == name else found["beside"]
        shown = f"{ratio:.2f}" if beside else ""
        lines.append(
            FEATURE_COLUMNS.format(
                name,
                number(found["jobs_per_s"]),
                shown,
                beside,
                "" if goal is None else f"{goal:g}",
                verdict,
                meaning,
            )
        )
    return "\n".join(line.rstrip() for line in lines)


def peers_table(peers: Mapping[str, Mapping[str, float | str]]) -> str:
    lines = [f"{'':<20} {'enqueue':>10} {'drain':>10}"]
    for name, found in peers.items():
        if "problem" in found:
            lines.append(f"{name:<20} {found['problem']}")
        else:
            figures = " ".join(f"{number(float(found[what])):>10}" for what in ("enqueue", "drain"))
            lines.append(f"{name:<20} {figures}  {found['how']}")
    return "\n".join(lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
