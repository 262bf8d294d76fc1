"""The contract of each Lua script is as recorded: its keys, names, arguments and flags."""

from __future__ import annotations

import re
from pathlib import Path

from goldens import compare

import qbull

SOURCE = Path(qbull.__file__).parent
_HEADER = re.compile(r"-- (KEYS|NEEDS|NAMES|ARGV|FLAGS|USES)\s+(.*)")


def test_lua_contracts_are_as_recorded() -> None:
    contracts = {_name(path): _contract(path.read_text()) for path in SOURCE.rglob("*.lua")}
    scripts = sorted((name, lines) for name, lines in contracts.items() if lines)

    compare("lua_contracts.txt", "\n".join("\n".join([name, *lines]) for name, lines in scripts))


def _name(path: Path) -> str:
    return f"lib/{path.stem}" if path.parent.name == "lib" else path.stem


def _contract(source: str) -> list[str]:
    """The lines of the header. Files without one take and need nothing."""
    found: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        if match := _HEADER.fullmatch(line):
            found[match[1]] = f"{found.get(match[1], '')} {match[2]}".strip()
    return [f"    {word:5} {said}" for word, said in found.items()]
