"""Run programs in an environment that has nothing of the developer's own, and no Node."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pythons import Interpreter

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 300


def make_environment(python: Interpreter, directory: Path, *, with_pip: bool = True) -> list[str]:
    """A new virtual environment; gives the command of its pip."""
    options = [] if with_pip else ["--without-pip"]
    run(str(python.path), "-m", "venv", *options, str(directory), env=without_node(), cwd=directory.parent)
    return [str(directory / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]


def locked_versions() -> str:
    """The lock without its hashes, as constraints: with hashes, pip would want one of the wheel too."""
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    return "\n".join(line.removesuffix("\\").strip() for line in lines if re.match(r"[a-z0-9]", line))


def without_node(*first: Path) -> dict[str, str]:
    """An environment with nothing of the developer's own, and a PATH on which there is no Node."""
    paths = [
        path
        for path in os.environ["PATH"].split(os.pathsep)
        if not any((Path(path) / name).exists() for name in ("node", "npm"))
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_", "SSL_", "LANG", "HOME", "TMPDIR"))
        or name.lower().endswith("_proxy")
    }
    return {**kept, "PATH": os.pathsep.join([*map(str, first), *paths])}


def run(*command: str, env: Mapping[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        raise AssertionError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout
