"""A shell to run `qbull` in: real processes, on the test's server, none of which outlives its test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from sample_app import SampleApp

import qbull
from patience import pause_after

T = TypeVar("T")

QBULL = [sys.executable, "-m", "qbull.cli.main"]
HERE = Path(__file__).parent


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs `qbull` in a directory. Without a `url`, no server is configured."""

    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            **({"QBULL_URL": url} if url else {}),
            "QBULL_PREFIX": "test",
            "PYTHONPATH": os.pathsep.join([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        }
        self.started: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Ended:
        done = subprocess.run(
            [*QBULL, *arguments],
            cwd=self.directory,
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, **options: str) -> str:
        done = self.run(*arguments, **options)
        assert done.code == 0, done
        return done.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1, **options: str) -> str:
        """The one line that a command ends with which cannot do what was asked."""
        done = self.run(*arguments, **options)
        assert done.code == code, done
        assert done.out == ""
        assert done.err.startswith("qbull: ") and done.err.count("\n") == 1, done.err
        return done.err.removeprefix("qbull: ").strip()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A process that goes on, in a group of its own; what it says is in the files out and err."""
        with (self.directory / "out").open("w") as out, (self.directory / "err").open("w") as err:
            process = subprocess.Popen(
                [*QBULL, *arguments],
                cwd=self.directory,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    @property
    def out(self) -> str:
        return (self.directory / "out").read_text()

    @property
    def err(self) -> str:
        return (self.directory / "err").read_text()

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture(name="shell")
def open_shell(server_url: str, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(server_url, tmp_path)
    yield shell
    shell.close()


@pytest.fixture(name="sample")
def make_sample(app: qbull.App) -> SampleApp:
    return SampleApp(app)


def seen(look: Callable[[], T], within: float = 20.0) -> T:
    """Wait until `look` gives something true, and give it back."""
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < within, f"did not happen within {within} s; last seen: {found!r}"
        time.sleep(pause_after(waited))
    return found
