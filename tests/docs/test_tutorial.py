"""The tutorial, done from its first line to its last."""

from __future__ import annotations

import itertools
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from pages import ROOT
from tutorial import PARTS, Reader, steps_of

from qbull.cli.main import qbull as command_line


@pytest.fixture
def reader(server_url: str) -> Iterator[Reader]:
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        instead = {"8000": free_port(), "3050": free_port(), "redis://127.0.0.1:6379/0": server_url}
        reader = Reader(Path(directory), instead)
        yield reader
        reader.leaves()


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@pytest.mark.timeout(600)
def test_the_tutorial_works_from_its_first_line_to_its_last(reader: Reader) -> None:
    reader.does([step for part in PARTS for step in steps_of(part)])

    assert len(PARTS) == 6
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "tasks.py", "web.py", "load.py", "test_tasks.py"],
        cwd=reader.directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.timeout(1200)
def test_the_tutorial_works_on_a_machine_that_has_only_the_wheel(server_url: str) -> None:
    """Without the repository and its environment: `pip install` takes the wheel, and all else from the index."""
    with tempfile.TemporaryDirectory(prefix="q") as directory:
        wheels = Path(directory) / "wheels"
        built = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr
        instead = {"8000": free_port(), "3050": free_port(), "redis://127.0.0.1:6379/0": server_url}
        reader = Reader(Path(directory), instead, wheels)
        try:
            reader.does([step for part in PARTS for step in steps_of(part)])
            [package] = reader.directory.glob(".venv/lib/python3*/site-packages/qbull/__init__.py")
            assert not package.is_relative_to(ROOT)
        finally:
            reader.leaves()


def test_each_part_leads_to_the_next() -> None:
    index = (PARTS[0].parent / "index.md").read_text()

    assert [part.name for part in PARTS if f"({part.name})" not in index] == []
    for part, after in itertools.pairwise(PARTS):
        assert "Next: [" in part.read_text() and f"({after.name})" in part.read_text()


def test_the_commands_of_the_containers_are_those_of_qbull() -> None:
    [compose] = [yaml.safe_load(step.text) for step in steps_of(PARTS[-1]) if step.language == "yaml"]
    commands = [shlex.split(service["command"]) for service in compose["services"].values()]
    ours = [words[1:] for words in commands if words[0] == "qbull"]

    assert [words[0] for words in ours] == ["worker", "serve"]
    for name, *words in ours:
        command = command_line.get_command(click.Context(command_line), name)
        assert command is not None
        command.make_context(name, words)
