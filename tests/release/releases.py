"""Earlier releases beside the code of today, on one server: the wheels of the releases, and the processes of both."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

from needed_tools import skip_without_tool

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RELEASES = {"0.1.0-candidate": "9f4ec25f"}
"""Each release with its commit. A new release adds its own, and those of the releases before stay."""
PACKED = ("src", "examples", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
"""What a wheel is made from. Without the sources of the dashboard, the build leaves the dashboard out."""


@dataclass(frozen=True)
class Release:
    """A qbull that can be run: its Python, and the directory that Python imports it from."""

    python: Path
    package: Path


CURRENT = Release(Path(sys.executable), ROOT / "src" / "qbull")


def install_release(commit: str, directory: Path) -> Release:
    """Build the wheel of a commit and install it into an environment of its own.

    The packages that qbull needs are those of this environment: a line in a .pth file makes them importable, but not
    the qbull of today, because Python does not follow the .pth files there.
    """
    sources, environment = directory / "sources", directory / "environment"
    _unpack(commit, sources)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory), cwd=sources)
    [wheel] = directory.glob("qbull-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment), cwd=directory)
    python = environment / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    _run(*pip, "--disable-pip-version-check", str(wheel), cwd=directory)
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    installed = Path(_run(str(python), "-c", show, cwd=directory).strip())
    (installed / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Release(python, installed / "qbull")


def _unpack(commit: str, where: Path) -> None:
    packed = subprocess.run(["git", "archive", commit, *PACKED], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        skip_without_tool(f"the history of this repository does not have {commit}: git fetch --unshallow")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(where, filter="data")


def _run(*command: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


class Upgrade:
    """Processes of two releases with one log."""

    def __init__(self, module: str, url: str, where: Path, **more: str) -> None:
        self.module = module
        self.log, self.gate, self.output = where / "log", where / "gate", where / "output"
        self.environment = {
            **os.environ,
            "UPGRADE_URL": url,
            "UPGRADE_LOG": str(self.log),
            "UPGRADE_GATE": str(self.gate),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(HERE),
            **more,
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, release: Release, *command: str) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [str(release.python), *command], cwd=HERE, env=self.environment, stdout=output, stderr=output
            )
        self.started.append(process)
        return process

    def work(self, release: Release, *options: str) -> subprocess.Popen[bytes]:
        command = ("-m", "qbull.cli.main", "worker", f"{self.module}:app", "--grace", "1", *options)
        return self.start(release, *command)

    def run(self, release: Release, *arguments: str) -> None:
        """Run `main` of the module in a program that imports it, to its end."""
        program = f"import sys, {self.module}; {self.module}.main(*sys.argv[1:])"
        ended = self.start(release, "-c", program, *arguments).wait(60)
        assert ended == 0, self.output.read_text()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(60)
