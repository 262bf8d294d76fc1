"""Each program in examples/ runs, and prints what it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shell import Shell, make_sample, open_shell  # noqa: F401 - two are fixtures

import qbull

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTS = {
    "first_steps": "Welcome, Ada!\nenqueued again: False\n",
    "ordered_by_key": "ana [1, 2, 3, 4, 5]\nbob [1, 2, 3, 4, 5]\n",
}


@pytest.mark.parametrize("name", sorted(PRINTS))
async def test_an_example_runs(shell: Shell, app: qbull.App, name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, PRINTS[name]), done.stderr


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)
