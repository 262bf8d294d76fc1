"""deploy/Dockerfile: every instruction is known, what it copies is there and gets into the context, nobody runs as root."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePath

import pytest
from reading import DEPLOY, READ, ROOT, parsed

from qbull.cli.templates import TEMPLATES
from qbull.environment import read_environment

INSTRUCTIONS = [
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "FROM",
    "HEALTHCHECK",
    "RUN",
    "STOPSIGNAL",
    "USER",
    "WORKDIR",
]


@dataclass(frozen=True)
class Step:
    word: str
    rest: str

    @property
    def listed(self) -> list[str]:
        """The arguments of the exec form."""
        found = json.loads(self.rest[self.rest.index("[") :])
        assert all(isinstance(part, str) for part in found)
        return list(found)


def steps() -> list[Step]:
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = []
    for line in filter(None, joined.splitlines()):
        word, _, rest = line.partition(" ")
        assert word in INSTRUCTIONS, f"no instruction of this file: {line}"
        assert rest.strip(), line
        found.append(Step(word, rest))
    return found


def stages() -> list[list[Step]]:
    """The steps of each image, its FROM first."""
    found: list[list[Step]] = []
    for step in steps():
        if step.word == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def ignored(path: str) -> bool:
    """As the rules of Dockerfile.dockerignore have it: the last one that matches decides."""
    out = False
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        rule = line.removeprefix("!")
        if not rule or rule.startswith("#"):
            continue
        if any(fnmatch.fnmatch(part, rule) for part in (path, *map(str, PurePath(path).parents))):
            out = not line.startswith("!")
    return out


def last(word: str) -> Step:
    return [step for step in stages()[-1] if step.word == word][-1]


def test_the_bases_are_slim_and_pythons_that_qbull_supports() -> None:
    arguments = dict(step.rest.split("=", 1) for step in steps() if step.word == "ARG")
    bases = [stage[0].rest.split()[0] for stage in stages()]

    assert bases == ["${NODE}", "${PYTHON}", "${PYTHON}"]
    assert arguments["NODE"].startswith("node:22-slim@")
    python = re.match(r"python:(3\.\d+)-slim@", arguments["PYTHON"])
    assert python is not None
    assert f"Programming Language :: Python :: {python[1]}" in (ROOT / "pyproject.toml").read_text()


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    names = {match.group(1) for stage in stages() if (match := re.search(r" AS (\w+)", stage[0].rest))}
    for step in (step for step in steps() if step.word == "COPY"):
        *sources, _ = shlex.split(step.rest)
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in names
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert not ignored(source), source
    assert not ignored("examples/platform/.github/workflows/deploy.yml")
    for left in (".env", ".qbull/valkey/dump.rdb", "orders.db", "chats/1.txt", "uploads/cv.pdf"):
        assert ignored(f"examples/orders/{left}")
    assert ignored(".venv") and ignored(".qbull") and ignored("tests/conftest.py")


def test_everything_that_is_installed_from_a_registry_has_a_hash() -> None:
    installs = re.findall(
        r"pip install ([^&]+)", " && ".join(step.rest for step in steps() if step.word == "RUN")
    )

    assert len(installs) == 3
    for install in installs:
        assert install.startswith(("--require-hashes -r requirements/", "--no-deps --no-index /wheels/"))
    for name in ("run.txt", "build.txt"):
        text = (ROOT / "requirements" / name).read_text()
        pins = re.findall(r"^[A-Za-z0-9_.-]+==", text, re.MULTILINE)
        assert pins and text.count(" \\\n    --hash=sha256:") >= len(pins)
        assert "://" not in text


def test_the_locked_requirements_are_those_of_the_package() -> None:
    project = re.search(
        r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE
    )
    assert project is not None
    wanted = set(re.findall(r'^  "([a-z0-9-]+)', project.group(1), re.MULTILINE))

    locked = set(
        re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    )

    assert wanted <= locked


def test_nobody_runs_as_root() -> None:
    user = last("USER").rest
    [made] = re.findall(r"useradd [^&]*--uid (\d+)", " ".join(step.rest for step in steps()))

    assert user == f"{made}:{made}" and int(made) > 0


def test_the_entry_and_the_health_check_are_commands_of_qbull() -> None:
    entry, command = last("ENTRYPOINT").listed, last("CMD").listed
    check = last("HEALTHCHECK")

    assert entry == ["tini", "--", "qbull"]
    assert "'tini=0.19.*'" in " ".join(step.rest for step in stages()[-1])
    assert parsed(command)[0] == "worker"
    assert check.listed == ["qbull-alive"]
    assert re.fullmatch(r"(--(interval|timeout|start-period)=\d+s |--retries=\d+ ){4}CMD \[.*", check.rest)
    assert last("STOPSIGNAL").rest == "SIGTERM"


def test_its_variables_are_known() -> None:
    variables = dict(word.split("=", 1) for word in shlex.split(last("ENV").rest))
    ours = {
        name: value for name, value in variables.items() if not name.startswith("PYTHON") and name != "PATH"
    }

    assert set(ours) <= READ
    assert read_environment(ours).log_format == "json"


def copy_sources(directory: Path) -> None:
    """What COPY puts into the directory of the stage that builds the wheel, as far as it comes from the context."""
    for step in (step for step in stages()[1] if step.word == "COPY"):
        *sources, target = shlex.split(step.rest)
        for source in () if sources[0].startswith("--from=") else sources:
            whole = (ROOT / source).is_dir()
            put(ROOT / source, directory / target / ("" if whole else Path(source).name))


def put(source: Path, target: Path) -> None:
    """As COPY does it, without what is ignored."""
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    for path in files:
        if not ignored(path.relative_to(ROOT).as_posix()):
            there = target / path.relative_to(source) if source.is_dir() else target
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)


@pytest.mark.timeout(120)
def test_the_wheel_has_all_that_a_worker_needs(tmp_path: Path) -> None:
    """Built as the image builds it, from what is copied there and nothing else, and used without the sources."""
    there = tmp_path / "src"
    copy_sources(there)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, there],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        file.extractall(tmp_path / "unpacked")

    package = ROOT / "src"
    sources = {
        str(path.relative_to(package))
        for kind in ("*.py", "*.lua", "py.typed")
        for path in package.rglob(kind)
    }
    assert sources - names == set()
    for template in TEMPLATES:
        assert f"qbull/cli/template_files/{template}/README.md" in names
    assert [name for name in names if name.endswith("/.env") or "/chats/" in name] == []
    done = subprocess.run(
        [sys.executable, "-m", "qbull.cli.main", "worker", "--help"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "unpacked"), "PATH": "/usr/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "--grace" in done.stdout
