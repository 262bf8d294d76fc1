"""Runs the tests of another project against a door, in a process of its own, and reads their outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from sdists import Sdist

HERE = Path(__file__).parent
RUN_TIMEOUT_SECONDS = 900
TEST_TIMEOUT_SECONDS = 30
PLUGINS_LEFT_OUT = ("no:schemathesis", "no:qbull", "no:randomly")


def run_suite(
    sdist: Sdist,
    plugin: str,
    tests: Sequence[str],
    server_url: str,
    report: Path,
) -> dict[str, tuple[str, str]]:
    """The outcome and the reason of each test.

    Args:
        sdist: The distribution that has the tests.
        plugin: The module of pytest that puts the door in the place of the other project.
        tests: The files.
        server_url: The address of a server.
        report: The file for the outcomes.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", f"--timeout={TEST_TIMEOUT_SECONDS}"]
    for name in (plugin, "suite_report", "no:cacheprovider", *PLUGINS_LEFT_OUT):
        command += ["-p", name]
    command += ["-c", os.devnull, "--rootdir=.", *tests]
    environment = os.environ | {
        "SUITE_SERVER": server_url,
        "SUITE_REPORT": str(report),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        command,
        cwd=sdist.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_SECONDS,
        check=False,
    )
    found: dict[str, list[str]] = json.loads(report.read_text()) if report.exists() else {}
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    return {name: (outcome, reason) for name, (outcome, reason) in found.items()}


def differences(
    found: Mapping[str, tuple[str, str]], expected: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[object, object]]:
    """Tests whose outcome is not the expected one, with both."""
    names = found.keys() | expected.keys()
    pairs = {name: (found.get(name), expected.get(name)) for name in sorted(names)}
    return {n: (now, then) for n, (now, then) in pairs.items() if (now or [None])[0] != (then or [None])[0]}


def counts(expected: Mapping[str, tuple[str, str]]) -> Counter[str]:
    return Counter(outcome for outcome, _ in expected.values())
