"""Somebody who does the tutorial: saves its files, types its commands, and compares what they print."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pages import DOCS, FENCE

PARTS = sorted((DOCS / "tutorial").glob("[1-9]_*.md"))
SECONDS = 90
"""How long a command may take until it prints what the page shows."""
INSTALL_SECONDS = 400
DIRECTIVE = re.compile(r"<!-- (.+) -->")
RELOADED = re.compile(r"(?:tasks\.py|and \d+ more) changed, reloaded")
MODULES = {
    "pillow": "PIL",
    "qbull[api]": "uvicorn",
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "pytest": "pytest",
    "pytest-asyncio": "pytest_asyncio",
}
"""What is installed by these names. The tests have all of it."""


@dataclass(frozen=True)
class Step:
    """A block of a page with the comment before it, or a comment alone, whose language is empty."""

    place: str
    directive: str
    language: str
    text: str


def steps_of(page: Path) -> Iterator[Step]:
    directive, language, inside = "", None, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        place = f"{page.name}:{number}"
        if fence := FENCE.match(line):
            if language is None:
                language, inside = fence[2], []
            else:
                yield Step(place, directive, language, "\n".join(inside) + "\n")
                directive, language = "", None
        elif language is not None:
            inside.append(line)
        elif comment := DIRECTIVE.fullmatch(line):
            directive = comment[1]
            if directive.startswith("stop: "):
                yield Step(place, directive, "", "")
                directive = ""


@dataclass
class Running:
    line: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(SECONDS)


@dataclass
class Reader:
    """`instead` has what stands for the ports and the server of the pages.

    With `wheels`, a directory with the built wheel, nothing of the repository is there: environments are made and packages
    are installed as the pages say.
    """

    directory: Path
    instead: dict[str, str]
    wheels: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    id: str = ""

    def __post_init__(self) -> None:
        path = f"{self.programs()}:{os.environ['PATH']}"
        gone = ("QBULL_", "PYTHON", "VIRTUAL_ENV", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
        if self.wheels is not None:
            kept["PIP_FIND_LINKS"] = f"{kept.get('PIP_FIND_LINKS', '')} {self.wheels}".strip()
        plain = {"PATH": path, "TMPDIR": str(self.directory), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
        self.environment = {**kept, **plain, "no_proxy": "*"}

    def does(self, steps: list[Step]) -> None:
        for at, step in enumerate(steps):
            shown = steps[at + 1].text if at + 1 < len(steps) and steps[at + 1].language == "text" else ""
            if step.directive.startswith("stop: "):
                self.stops(step.directive.removeprefix("stop: "))
            elif step.directive.startswith(("file: ", "add to: ")):
                self.saves(step)
            elif step.language == "sh":
                self.types(step, shown)
            else:
                assert step.language in ("text", "yaml"), f"{step.place}: what is to be done with it?"

    def stops(self, start: str) -> None:
        first = next(one for one in self.running if one.line.startswith(start))
        self.running.remove(first)
        first.stop()
        assert first.process.returncode in (0, 130, -signal.SIGINT), first.log.read_text()

    def saves(self, step: Step) -> None:
        what, _, name = step.directive.partition(": ")
        path = self.directory / name
        dev = [one for one in self.running if one.line.startswith("qbull dev")] if name == "tasks.py" else []
        before = [len(RELOADED.findall(one.log.read_text())) for one in dev]
        text = step.text if what == "file" else path.read_text() + step.text
        path.write_text(text)
        for one, count in zip(dev, before, strict=True):
            self.waits(one, lambda log, count=count: len(RELOADED.findall(log)) > count)

    def programs(self) -> Path:
        """The directory that has `python`: that of the tests, or one with a bare interpreter."""
        if self.wheels is None:
            return Path(sys.executable).parent
        bare = self.directory / "bare"
        bare.mkdir()
        for name in ("python", "python3"):
            (bare / name).symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        return bare

    def types(self, step: Step, shown: str) -> None:
        *first, last = [line for line in step.text.splitlines() if line and not line.startswith("#")]
        for line in first:
            self.runs(step, line)
        if step.directive == "keep running":
            self.starts(last, shown)
        elif step.directive == "until it prints this":
            end = time.monotonic() + SECONDS
            while not re.search(pattern(shown), said := self.runs(step, last)):
                assert time.monotonic() < end, f"{step.place}: {said}"
                time.sleep(0.2)
        else:
            said = self.runs(step, last)
            assert re.search(pattern(shown), said), f"{step.place}: {said}"

    def runs(self, step: Step, line: str) -> str:
        words = shlex.split(line)
        if words[:2] == ["pip", "install"] and self.wheels is None:
            assert all(importlib.util.find_spec(MODULES[name]) for name in words[2:]), line
            return ""
        if words[0] == ".":
            self.environment["PATH"] = f"{(self.directory / words[1]).parent}:{self.environment['PATH']}"
            return ""
        if words[:3] == ["python", "-m", "venv"] and self.wheels is None:
            return ""
        if words[0] == "cd":
            self.directory /= words[1]
            return ""
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = self.instead.get(value, value)
            return ""
        done = subprocess.run(
            self.as_here(line), shell=True, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=INSTALL_SECONDS if words[0] == "pip" else SECONDS, check=False
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == (step.directive == "fails"), f"{step.place}: {line}: {said}"
        if job := re.search(r'"job":"(\w+)"', said):
            self.id = job[1]
        return said

    def starts(self, line: str, shown: str) -> None:
        log = self.directory / f".log-{time.monotonic_ns()}"
        command = f"env {line}" if re.match(r"[A-Z_]+=", line) else line
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {self.as_here(command)}"],
                cwd=self.directory, env=self.environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        one = Running(line, process, log)
        self.running.append(one)
        self.waits(one, lambda said: re.search(pattern(shown), said) is not None)

    def waits(self, one: Running, come: Callable[[str], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not come(one.log.read_text()):
            assert one.process.poll() is None, f"{one.line}: {one.log.read_text()}"
            assert time.monotonic() < end, f"{one.line}: {one.log.read_text()}"
            time.sleep(0.05)

    def as_here(self, line: str) -> str:
        for theirs, ours in self.instead.items():
            line = line.replace(theirs, ours)
        return re.sub(r"\bID\b", self.id, line)

    def leaves(self) -> None:
        for one in self.running:
            one.stop()


def pattern(shown: str) -> re.Pattern[str]:
    """What a page shows; three dots stand for anything, and ports are those of this machine."""
    text = re.escape(shown.strip()).replace("…", "(?s:.*?)")
    return re.compile(re.sub(r"3050|8000", r"\\d+", text))
