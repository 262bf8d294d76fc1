"""Loads the Lua of each verb and turns its header into local names, so that contract and code cannot drift.

    -- KEYS  base                    → local base = KEYS[1]
    -- NAMES index lanes             → local index = base .. 'index' …
    -- ARGV  limit:int owner … rest  → local limit = tonumber(ARGV[1]) …, and `rest`, where the list begins
    -- USES  record lane             → the files of lua/lib, in this order
    -- FLAGS allow-oom               → the script's flags

Scripts are called by digest, so two versions of qbull can share a server during a rolling deploy.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_prelude = ""
_HEADER_PATTERN = re.compile(r"^-- ([A-Z]+)\s+(.*)$")


@dataclass(frozen=True)
class Script:
    name: str
    source: str
    digest: str


@cache
def script(name: str) -> Script:
    body = _read(f"{name}.lua")
    header = _header(body)
    lines = [f"#!lua flags={header.get('FLAGS', '')}".removesuffix(" flags="), *_prelude.splitlines()]
    lines += [f"local {key} = KEYS[{i}]" for i, key in enumerate(header["KEYS"].split(), 1)]
    lines += [
        f"local {short} = {_first_key(header)} .. '{short}'" for short in header.get("NAMES", "").split()
    ]
    lines += _arguments(header.get("ARGV", ""))
    library = [_read(f"lib/{part}.lua") for part in header.get("USES", "").split()]
    source = "\n".join([*lines, *library, body])
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def set_prelude(part: str) -> None:
    """From now on every script of this process begins with a file of lua/lib. For tests that move the clock."""
    global _prelude
    _prelude = _read(f"lib/{part}.lua") if part else ""
    script.cache_clear()


def _arguments(spec: str) -> list[str]:
    fixed = spec.partition("…")[0]
    lines = []
    for position, argument in enumerate(fixed.split(), 1):
        name, _, kind = argument.partition(":")
        value = f"ARGV[{position}]"
        lines.append(f"local {name} = {f'tonumber({value})' if kind == 'int' else value}")
    if "…" in spec:
        lines.append(f"local rest = {len(fixed.split()) + 1}")
    return lines


def _header(source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in source.splitlines():
        match = _HEADER_PATTERN.match(line)
        if match and match.group(1) not in found:
            found[match.group(1)] = match.group(2).strip()
        elif not line.startswith("--"):
            break
    return found


def _first_key(header: dict[str, str]) -> str:
    return header["KEYS"].split()[0]


def _read(name: str) -> str:
    return files("qbull.store").joinpath("lua", *name.split("/")).read_text()
