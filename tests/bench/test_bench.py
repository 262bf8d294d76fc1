"""The bench works: its table is complete and its file has every figure. What the figures are is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.rounds import BARS, FIGURES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(420)


def test_a_quick_run_prints_every_figure_and_writes_them_down(tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    command = [sys.executable, "-m", "bench", "--quick", "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)

    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text())
    assert {"floor", "qbull", "ratios", "bars", "machine", "rounds"} <= found.keys()
    assert found["floor"].keys() == found["qbull"].keys() == set(FIGURES)
    assert found["ratios"].keys() == found["bars"].keys() == BARS.keys()
    assert all(isinstance(value, float) for who in ("floor", "qbull") for value in found[who].values())
    for figure in FIGURES:
        assert f"\n{figure} " in run.stdout


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
