"""Reading what deploy/ has: YAML without doubled keys, units, environments, and commands as the real command line parses them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

import qbull.environment
from qbull.cli.command_table import COMMANDS
from qbull.cli.main import qbull as command_line

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

READ = set(
    re.findall(
        r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PARTITIONS|TZ)"', Path(qbull.environment.__file__).read_text()
    )
)
"""The variables that qbull reads."""
AFTER_GRACE = 15
"""Seconds that a stop may take beyond --grace: ten until the parent kills, and some to write down and give back."""


class Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, where YAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value]
        doubled = {name for name in names if names.count(name) > 1}
        if doubled:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {doubled}", node.start_mark)
        return super().construct_mapping(node, deep)


def documents(path: Path) -> list[Any]:
    with path.open() as file:
        return list(yaml.load_all(file, Strict))


def parsed(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """A command and its options, as `qbull` itself understands them. Refused is what it would refuse."""
    name, *rest = arguments
    command = command_line.get_command(click.Context(command_line), name)
    assert command is not None, f"qbull has no command {name}; it has {', '.join(COMMANDS)}"
    return name, command.make_context(name, list(rest)).params


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """A systemd unit: section, name, values."""
    sections: dict[str, dict[str, list[str]]] = {}
    section = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith(("#", ";")):
            continue
        if match := re.fullmatch(r"\[([A-Z][a-z]+)\]", line):
            section = match.group(1)
            assert section not in sections, f"{path.name}:{number}: [{section}] twice"
            sections[section] = {}
        else:
            match = re.fullmatch(r"([A-Z][A-Za-z]+)=(\S.*|)", line)
            assert match, f"{path.name}:{number}: neither a section nor Name=value: {line}"
            assert section, f"{path.name}:{number}: outside of any section"
            sections[section].setdefault(match.group(1), []).append(match.group(2))
    return sections


def variables(lines: Sequence[str]) -> dict[str, str]:
    """NAME=value …"""
    found = {}
    for line in lines:
        for word in line.split(" "):
            name, equals, value = word.partition("=")
            assert equals and re.fullmatch(r"[A-Z_]+", name), f"no variable: {word}"
            assert name not in found, f"{name} twice"
            found[name] = value
    return found
