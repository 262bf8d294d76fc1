"""Find the Pythons of this machine, one for each minor version that the package names in its classifiers.

PYTHONS="/opt/py/bin/python3.13 python3.12" names them. Without it: the Python of this environment, then python3.N on
PATH, then the versions of pyenv. `python tests/release/pythons.py` prints them, one "version path" per line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SHOW_VERSION = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
START_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Interpreter:
    """One Python: its minor version, such as "3.12", and its path."""

    version: str
    path: Path


def supported_versions() -> list[str]:
    """The minor versions in the classifiers, the oldest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [line.rpartition(" ")[2] for line in classifiers if re.search(r":: Python :: 3\.\d+$", line)]


def find_pythons() -> list[Interpreter]:
    """One interpreter for each supported version that is here. One that PYTHONS names must work."""
    named = os.environ.get("PYTHONS")
    if named:
        found = [_ask(path) for path in shlex.split(named)]
        if None in found:
            sys.exit(f"PYTHONS={named}: not each of these starts")
        return [interpreter for interpreter in found if interpreter]
    versions = supported_versions()
    by_version: dict[str, Interpreter] = {}
    for path in _candidates(versions):
        interpreter = _ask(path)
        if interpreter and interpreter.version in versions:
            by_version.setdefault(interpreter.version, interpreter)
    return [by_version[version] for version in versions if version in by_version]


def report(found: list[Interpreter]) -> str:
    """What was found, and which supported versions are not tested."""
    versions = {interpreter.version for interpreter in found}
    lines = [f"Python {interpreter.version}: {interpreter.path}" for interpreter in found]
    skipped = [
        f"Python {version}: not found, skipped" for version in supported_versions() if version not in versions
    ]
    return "\n".join(lines + skipped)


def _candidates(versions: list[str]) -> Iterator[str]:
    yield getattr(sys, "_base_executable", sys.executable)
    for version in versions:
        if path := shutil.which(f"python{version}"):
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in versions:
        yield from map(str, pyenv.glob(f"versions/{version}.*/bin/python{version}"))


def _ask(path: str) -> Interpreter | None:
    """Its version. None if it does not start, as the shim of a version that pyenv has not selected, or has no venv."""
    try:
        done = subprocess.run(
            [path, "-c", _SHOW_VERSION],
            capture_output=True,
            text=True,
            check=True,
            timeout=START_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version, _, executable = done.stdout.strip().partition(" ")
    return Interpreter(version, Path(executable))


if __name__ == "__main__":
    pythons = find_pythons()
    for interpreter in pythons:
        print(interpreter.version, interpreter.path)
    print(report(pythons), file=sys.stderr)
