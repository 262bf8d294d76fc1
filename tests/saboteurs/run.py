"""Break the package in every way of the catalogue, one at a time, and see that the tests catch it: `make saboteurs`.

Each works on a copy; the code itself is not touched. Prints one line for each, and ends with 1 where one was not caught.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from catalogue import SABOTEURS, Saboteur

ROOT = Path(__file__).parents[2]


def broken(saboteur: Saboteur, folder: Path) -> None:
    """A copy of the package with this change."""
    shutil.copytree(ROOT / "src", folder)
    file = folder / "qbull" / saboteur.file
    file.write_text(file.read_text().replace(saboteur.old, saboteur.new))


def catch(saboteur: Saboteur, seconds: float) -> str | None:
    """The first test that fails; None where none does."""
    with tempfile.TemporaryDirectory(prefix="qbull-saboteur-") as made:
        folder = Path(made) / "src"
        broken(saboteur, folder)
        environment = os.environ | {"PYTHONPATH": str(folder)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *saboteur.caught_by]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return f"nothing ended within {seconds:g} s"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if found is not None:
        return found.group(1)
    return None if done.returncode == 0 else f"pytest ended with {done.returncode}"


def attempt(saboteur: Saboteur, seconds: float) -> tuple[str | None, float]:
    """The test that catches it, and the seconds that this took."""
    began = time.monotonic()
    return catch(saboteur, seconds), time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description="are broken builds caught?")
    parser.add_argument("only", nargs="*", help="words of the names of those to run")
    parser.add_argument("--seconds", type=float, default=600, help="for each (600)")
    parser.add_argument("--parallel", type=int, default=os.cpu_count(), help="at a time (one for each core)")
    options = parser.parse_args()
    chosen = [
        saboteur
        for saboteur in SABOTEURS
        if not options.only or any(word in saboteur.name for word in options.only)
    ]
    missed = 0
    with ThreadPoolExecutor(options.parallel) as pool:
        tried = pool.map(lambda saboteur: attempt(saboteur, options.seconds), chosen)
        for number, (saboteur, (caught, seconds)) in enumerate(zip(chosen, tried, strict=True), 1):
            missed += caught is None
            said = f"caught after {seconds:5.1f} s by {caught}" if caught else "NOT CAUGHT"
            print(f"{number:3} of {len(chosen)}  {saboteur.name:32} {said}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
