"""What is published: the source distribution is whole, and the wheel that is made from it without Node runs and has its page.

`make dist` does the same in empty environments, with what the lock has.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from clean_runs import run, without_node
from empty import play

import qbull
from needed_tools import skip_without_tool
from qbull.cli.templates import TEMPLATES, template_texts

ROOT = Path(__file__).parents[1]
BUILD = [sys.executable, "-m", "hatchling", "build", "-d"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Made from the source distribution, without Node."""
    if not (ROOT / "src/qbull/ui/.built").exists():
        skip_without_tool("the dashboard is not built here: make setup, with Node.js")
    where = tmp_path_factory.mktemp("dist")
    run(*BUILD, str(where), "-t", "sdist", env=without_node(), cwd=ROOT)
    [sdist] = where.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(where, filter="data")
    [source] = [path for path in where.iterdir() if path.is_dir()]
    run(*BUILD, str(where), "-t", "wheel", env=without_node(), cwd=source)
    [made] = where.glob("*.whl")
    return zipfile.ZipFile(made)


def test_the_wheel_has_everything_that_runs(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    sources = ROOT / "src"

    wanted = {
        path.relative_to(sources).as_posix()
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert "qbull/py.typed" in names
    assert "qbull/ui/index.html" in names
    assert [name for name in names if name.startswith(("tests", "docs", "bench", "ui/"))] == []


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_wheel_has_every_file_of_every_template_and_nothing_else(
    wheel: zipfile.ZipFile, template: str
) -> None:
    packed = f"qbull/cli/template_files/{template}/"

    found = {name.removeprefix(packed) for name in wheel.namelist() if name.startswith(packed)}

    assert found == set(template_texts(template)) - {".gitignore"}


def test_the_metadata_are_those_of_a_package_that_can_be_published(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    said = message_from_string(wheel.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert said["Name"] == "qbull"
    assert said["Version"] == qbull.__version__
    assert said["License-Expression"] == "MIT"
    assert said["License-File"] == "LICENSE"
    assert said["Requires-Python"] == project["requires-python"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert read_in_the_repository(str(said.get_payload())) == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert set(said.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])


def test_the_description_links_to_nothing_that_is_only_in_the_repository(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    text = str(message_from_string(wheel.read(name).decode()).get_payload())
    targets = re.findall(r'(?:\]\(|\bsrc(?:set)?=")([^)"\s]+)', text)

    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def read_in_the_repository(description: str) -> str:
    """The description with the links of README.md."""
    return re.sub(
        r"https://(?:raw\.githubusercontent\.com/qbull/qbull/main|github\.com/qbull/qbull/blob/main)/",
        "",
        description,
    )


def test_the_changelog_speaks_of_this_version_or_of_the_next() -> None:
    heads = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]

    assert heads[0] == "## Unreleased" or heads[0].startswith(f"## {qbull.__version__} ")


@pytest.mark.timeout(400)
def test_it_runs_and_serves_its_page_without_node(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    wheel.extractall(installed)
    env = {**without_node(Path(sys.executable).parent), "PYTHONPATH": str(installed)}

    where = run(sys.executable, "-c", "import qbull; print(qbull.__file__)", env=env, cwd=tmp_path)

    assert where.startswith(str(installed))
    play([sys.executable, "-m", "qbull.cli.main"], env, tmp_path)
