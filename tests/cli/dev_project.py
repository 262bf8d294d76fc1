"""A project directory in which `qbull dev` runs, on a server of its own. Nothing outlives its test."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from shell import Shell, seen


class DevProject:
    """`file` is what is edited there. No server is named."""

    def __init__(self, directory: Path, app: str = "shop:app", file: str = "shop.py") -> None:
        self.directory = directory
        self.app = app
        self.file = directory / file
        self.shell = Shell("", directory)

    def dev(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        return self.shell.start("dev", self.app, *options, **environment)

    def save(self, text: str) -> None:
        """As editors do: another file in its place."""
        new = self.file.with_suffix(".py~")
        new.write_text(text)
        new.replace(self.file)

    def said(self, pattern: str) -> re.Match[str]:
        found = seen(lambda: re.search(pattern, self.shell.err), within=60)
        assert found is not None
        return found

    def api(self) -> httpx.Client:
        url, password = self.said(r"(http://\S+)/ui, user admin, password (\S+)").groups()
        return httpx.Client(base_url=f"{url}/api", auth=("admin", password), trust_env=False, timeout=30)

    def left_behind(self) -> list[str]:
        """Processes that name the directory or work in it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace")
                if str(self.directory) in words or (process / "cwd").readlink() == self.directory:
                    found.append(words)
            except OSError:
                continue
        return found

    def clear(self) -> None:
        self.shell.close()
        seen(lambda: not self.left_behind(), within=60)


@pytest.fixture(name="short_path")
def open_short_path() -> Iterator[Path]:
    """A directory whose path is short, as the paths of sockets have to be."""
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        yield Path(directory)


@pytest.fixture(name="project")
def open_project(short_path: Path) -> Iterator[DevProject]:
    project = DevProject(short_path)
    yield project
    project.clear()
