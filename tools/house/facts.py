"""Counts of how often a fact is written: the files that name one member of each list.

Each fact has a witness, an existing member whose name is rare enough to be found by its spelling.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.source import Finding, House, Source

# Celery and RQ have words of their own.
FOREIGN_ROOMS = ("compat", "drain")
OPTION = "expires"
# API tokens expire too.
OTHER_MEANING = "token"
DURABILITY = "replicated"
BACKOFF = "exponential"


def option(house: House) -> Iterator[Finding]:
    """Files that list the job option `expires`: as a parameter, a field, a flag or a key."""
    for source in house.modules:
        if source.room in FOREIGN_ROOMS or OTHER_MEANING in source.name:
            continue
        if line := _lists(source, OPTION):
            yield source.at(line, f"lists the job option {OPTION}")


def _lists(source: Source, name: str) -> int:
    for node in source.nodes:
        found = (
            (isinstance(node, ast.arg) and node.arg == name)
            or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name)
            or (isinstance(node, ast.Constant) and node.value in (name, f"--{name}"))
        )
        if found:
            return int(node.lineno)  # type: ignore[attr-defined]
    return 0


def durability(house: House) -> Iterator[Finding]:
    """Files that have the durability level "replicated" as a literal."""
    return _literals(house, DURABILITY, "durability level")


def backoff(house: House) -> Iterator[Finding]:
    """Files that have the backoff "exponential" as a literal."""
    return _literals(house, BACKOFF, "backoff")


def _literals(house: House, word: str, fact: str) -> Iterator[Finding]:
    for source in house.sources:
        lines = [number for number, line in enumerate(source.lines, 1) if f'"{word}"' in line]
        if source.is_python and lines:
            lines = [
                node.lineno for node in source.nodes if isinstance(node, ast.Constant) and node.value == word
            ]
        if lines and source.room not in FOREIGN_ROOMS:
            yield source.at(lines[0], f'spells the {fact} "{word}"')
