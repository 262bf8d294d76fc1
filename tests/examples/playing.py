"""An example as a reader plays it: its commands are those of its page, started from its directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
_LEFT = shutil.ignore_patterns(".env", ".qbull", "__pycache__", "chats", "*.db", "uploads")


class Example:
    """A copy of the example, so that what it writes stays there."""

    def __init__(self, name: str, where: Path, url: str, **environment: str) -> None:
        self.directory = where / name
        shutil.copytree(EXAMPLES / name, self.directory, ignore=_LEFT)
        self.page = (self.directory / "README.md").read_text()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        told = {"PATH": path, "QBULL_URL": url, "QBULL_PREFIX": "test"}
        self.environment = {**os.environ, **told, **environment}
        self.log = where / "log"
        self.started: list[subprocess.Popen[bytes]] = []

    def configure(self, **settings: object) -> None:
        """Change lines of its .env as a reader would."""
        file = self.directory / ".env"
        if not file.exists():
            self.run("cp .env.example .env")
        lines = [line for line in file.read_text().splitlines() if line.partition("=")[0] not in settings]
        file.write_text("\n".join([*lines, *(f"{name}='{value}'" for name, value in settings.items()), ""]))

    def run(self, line: str, within: float = 220) -> str:
        """A command of the page, to its end; gives what it printed."""
        self._must_be_said(line)
        return to_its_end(["sh", "-c", line], self.directory, self.environment, within)

    def start(self, line: str, more: str = "") -> subprocess.Popen[bytes]:
        """A command of the page that goes on until it is stopped; `more` is for a port of its own. Of several, the last goes on."""
        self._must_be_said(line)
        first, _, last = f"{line} {more}".rpartition(" && ")
        before = f"{first} && " if first else ""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", f"{before}exec env {last}"],
                cwd=self.directory, env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def curl(self, line: str, **instead: object) -> Any:
        """A line of the page that asks somebody, but for what stands in it for something else: ports, TOKEN, USER."""
        self._must_be_said(line)
        for name, value in instead.items():
            line = line.replace(name.replace("port", "localhost:"), str(value))
        done = subprocess.run(
            ["sh", "-c", f"{line} -s -S -f"],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return _read(done.stdout.encode())

    def close(self) -> None:
        """Ask all to stop; whoever does not is killed with all it has started."""
        for process in self.started:
            process.terminate()
        for process in self.started:
            try:
                process.wait(40)
            finally:
                _kill_group(process)

    def _must_be_said(self, line: str) -> None:
        said = [written.partition("  #")[0].strip() for written in self.page.splitlines()]
        assert line in said or f"`{line}`" in self.page, (
            f"the page of {self.directory.name} does not have the command: {line}"
        )


def to_its_end(command: Sequence[str], directory: Path, environment: Mapping[str, str], within: float) -> str:
    """What it printed. Where it takes too long it is told to stop, so that it ends what it has started."""
    with subprocess.Popen(
        command,
        cwd=directory, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=40)
            finally:
                _kill_group(process)
            raise
    assert process.returncode == 0, err
    return out


def ask(url: str, method: str = "GET", body: Any = None, token: str = "") -> tuple[int, Any]:
    """An answer over HTTP: its status, and its JSON or text."""
    request = urllib.request.Request(url, method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if isinstance(body, bytes):
        request.data = body
    elif body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, _read(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, _read(error.read())


async def answers(url: str) -> bool:
    """Whether somebody listens there."""
    try:
        return ask(url)[0] < 500
    except OSError:
        return False


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
