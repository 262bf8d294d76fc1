"""The build of the page: small, true to the API, and in the wheel. No browser is needed for these."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from needed_tools import needs_tool

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "src" / "qbull" / "ui"
FIRST_LOAD = 80_000
FIRST_LOAD_IN_SPANISH = 110_000
"""Bytes, compressed."""

built = needs_tool(
    (BUILT / "index.html").is_file(), "the dashboard was not built: Node.js is needed for that"
)


def test_the_types_of_the_page_are_those_of_the_api() -> None:
    made = runpy.run_path(str(ROOT / "ui" / "wire.py"))["typescript"]()

    there = (ROOT / "ui" / "src" / "wire.ts").read_text()
    assert there == made, "the API has changed: run .venv/bin/python ui/wire.py > ui/src/wire.ts"


@built
def test_the_first_load_is_small() -> None:
    index = (BUILT / "index.html").read_text()
    needed = re.findall(r'(?:src|href)="\./(assets/[^"]+\.(?:js|css))"', index)

    sizes = {name: (BUILT / f"{name}.gz").stat().st_size for name in needed}

    assert len(sizes) >= 2
    assert sum(sizes.values()) < FIRST_LOAD, sizes
    words = {file.name: file.stat().st_size for file in (BUILT / "assets").glob("es*.js.gz")}
    assert len(words) == 3 and sum(sizes.values()) + sum(words.values()) < FIRST_LOAD_IN_SPANISH, words
    on_demand = [file.name for file in (BUILT / "assets").glob("*layout*.js.gz")]
    assert len(on_demand) == 1 and not set(on_demand) & {f"{Path(name).name}.gz" for name in needed}


@built
def test_no_address_outside_the_server_is_in_the_page() -> None:
    allowed = {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xhtml",
        "http://www.w3.org/1998/Math/MathML",
    }

    found = {
        address
        for file in BUILT.rglob("*")
        if file.suffix in (".js", ".css", ".html", ".svg")
        for address in re.findall(r"https?://[\w./-]+", file.read_text())
    }

    assert found - allowed == set()


@pytest.mark.parametrize("program", ["million", "pictures"])
def test_a_program_beside_the_tests_finds_its_modules_without_pytest(program: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    command = [sys.executable, "-c", f"import {program}"]
    subprocess.run(command, cwd=Path(__file__).parent, env=environment, check=True)


@built
def test_the_wheel_has_the_page_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()

    assert "qbull/ui/index.html" in names
    assert [name for name in names if re.fullmatch(r"qbull/ui/assets/index-.+\.js\.gz", name)]
    assert not [name for name in names if "node_modules" in name]
