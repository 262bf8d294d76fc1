"""The bench works: its table is complete and its file has every figure. What the figures are is not tested."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.features import FEATURES
from bench.rounds import BARS, FIGURES

from qbull.store.store import Store

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(420)


def test_a_quick_run_prints_every_figure_and_writes_them_down(tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    rows = ["plain", "threads", "payload_10k", "awaited", "enqueue", "enqueue_unique", "confirmed_one_key"]
    command = [sys.executable, "-m", "bench", "--quick", "--rows", " ".join(rows), "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)

    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text())
    assert {"floor", "qbull", "ratios", "bars", "machine", "rounds"} <= found.keys()
    assert found["floor"].keys() == found["qbull"].keys() == set(FIGURES)
    assert found["ratios"].keys() == found["bars"].keys() == BARS.keys()
    assert all(isinstance(value, float) for who in ("floor", "qbull") for value in found[who].values())
    assert found["features"].keys() == set(rows)
    assert all(row["jobs_per_s"] > 0 for row in found["features"].values())
    for row in (*FIGURES, *rows):
        assert f"\n{row} " in run.stdout


@pytest.mark.parametrize("row", [name for name, feature in FEATURES.items() if not feature.with_replica])
async def test_the_jobs_of_each_feature_run(store: Store, server_url: str, row: str) -> None:
    feature = FEATURES[row]
    app, task = feature.declare(server_url)
    async with app:
        await feature.fill(task, feature.calls(22))
        if row == "enqueue_delayed":
            assert (await task.queue.stats()).delayed == 22
            return
        async with app.worker(), asyncio.timeout(60):
            while (stats := await task.queue.stats()).completed < 22:
                await asyncio.sleep(0.01)
    assert stats.failed == 0


def test_emitted_values_are_compared_with_a_bare_stream() -> None:
    command = [sys.executable, "-m", "bench.streams", "--values", "20", "--rounds", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)

    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["XADD", "emit", "ratio"]


def test_two_builds_are_measured_in_turn(tmp_path: Path) -> None:
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("these files are not a git repository")
    out = tmp_path / "ratios.json"
    command = [sys.executable, "-m", "bench.paired", "HEAD", "--rounds", "2", "--jobs", "300"]
    rows = ["drain", "enqueue_bulk", "latency"]
    run = subprocess.run(
        [*command, "--rows", *rows, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=200
    )

    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()[1:]] == rows
    assert all(ratio > 0 for ratio in json.loads(out.read_text()).values())


def test_enqueues_by_http_are_compared_with_empty_handlers() -> None:
    command = [sys.executable, "-m", "bench.rest", "--connections", "20", "--each", "5", "--rounds", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)

    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == [
        "bare",
        "empty",
        "enqueue",
        "enqueue",
        "enqueue",
    ]


def test_sleeping_jobs_are_weighed_and_woken() -> None:
    command = [sys.executable, "-m", "bench.sleeping", "--jobs", "50", "--wakes", "20", "--seconds", "0.5"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)

    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["memory", "processor", "lateness"]
