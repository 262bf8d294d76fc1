"""A test without its tool is skipped, and fails where QBULL_NO_SKIPS=1 allows no skips."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
EXAMPLE = "tests/deploy/test_kubernetes.py::test_kubectl_reads_the_same_in_it"


def run_without_kubectl(directory: Path, no_skips: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(directory), "QBULL_NO_SKIPS": no_skips}
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", EXAMPLE]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("no_skips", "ended", "summary"), [("", 0, "4 skipped"), ("1", 1, "4 errors")])
def test_a_missing_tool_skips_a_test_or_fails_it(
    tmp_path: Path, no_skips: str, ended: int, summary: str
) -> None:
    done = run_without_kubectl(tmp_path, no_skips)

    assert (done.returncode, summary in done.stdout) == (ended, True), done.stdout + done.stderr
    assert "kubectl is not installed" in done.stdout


def test_every_job_of_ci_that_runs_the_tests_allows_no_skips() -> None:
    runs = [
        job.get("env", {}).get("QBULL_NO_SKIPS")
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job.get("steps", [])
        if re.match(r"make (test|matrix)\b", step.get("run", ""))
    ]

    assert runs and set(runs) == {"1"}
