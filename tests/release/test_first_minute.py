"""The first minute: `make run` in a new clone, for somebody who has no configuration and another Python than the system's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pythons import Interpreter, find_pythons

from needed_tools import needs_tool

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 600
FOREIGN = [python for python in find_pythons() if python.path.resolve() != Path(sys.executable).resolve()]


def clone(where: Path) -> Path:
    """The files that git has, as they are in this checkout, and nothing that a build has left."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, where / name)
    return where


def environment_of_a_newcomer(home: Path) -> dict[str, str]:
    """Nothing of the developer's own but the way to the packages."""
    kept = ("PATH", "TMPDIR", "LANG")
    prefixes = ("PIP_", "NPM_CONFIG_", "SSL_", "NODE_EXTRA")
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or name.upper().startswith(prefixes) or name.lower().endswith("_proxy")
    } | {"HOME": str(home)}


def locked_names() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE))


@needs_tool(shutil.which("npm"), "npm is not installed, and a clone has no dashboard yet")
@needs_tool(FOREIGN, "there is only one Python here")
@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_a_new_clone_runs_the_demo_with_a_python_of_ones_own(tmp_path: Path) -> None:
    python: Interpreter = FOREIGN[0]
    directory, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()

    done = subprocess.run(
        ["make", "run", "ARGS=--once", f"PYTHON={python.path}"],
        cwd=directory, env=environment_of_a_newcomer(home), capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = done.stdout
    assert "installing qbull's dependencies into .venv" in said and "building the dashboard" in said
    assert said.index("building the dashboard") < said.index("order: kept for each of 12 accounts")
    show = "import importlib.metadata as m, sys; print(*sys.version_info[:2], *(d.name for d in m.distributions()))"
    listed = subprocess.run(
        [directory / ".venv/bin/python", "-c", show], capture_output=True, text=True, check=True, cwd=home
    )
    major, minor, *names = listed.stdout.split()
    installed = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    assert f"{major}.{minor}" == python.version
    assert installed - {"pip", "setuptools"} <= locked_names()
    assert {"redis", "msgspec"} <= installed


WITHOUT_ENSUREPIP = """#!/bin/sh
test "$1" = -c && exit 0
mkdir -p .venv/bin && touch .venv/bin/python
echo "ensurepip is not available: apt install python3-venv" >&2
exit 1
"""
"""As Debian's Python without the package python3-venv: it fails, and leaves an environment that has no pip."""


def test_a_python_that_cannot_make_an_environment_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(WITHOUT_ENSUREPIP)
    (tmp_path / "python").chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "ui").mkdir()

    command = ["make", ".venv/bin/python", f"PYTHON={tmp_path}/python"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode != 0 and "apt install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists(), "the next make would take it for a whole environment"
