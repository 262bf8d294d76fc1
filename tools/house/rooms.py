"""Lints of the rooms: a small root, every room in a layer and on the map, no imitation of App and Queue."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from house.source import Finding, House
from house.tables import EXTENSION_POINTS

MAP = "CONTRIBUTING.md"
LAYERS = "pyproject.toml"


def root_modules(house: House) -> Iterator[Finding]:
    for source in house.root_modules:
        yield source.at(1, f"{source.name} is in the root")


def _rooms(house: House) -> dict[str, str]:
    """What stands directly in the package, as it is written on the map, with its path."""
    modules = {source.name: source.path for source in house.root_modules}
    return modules | {f"{name}/": f"src/qbull/{name}/__init__.py" for name in house.packages}


def layers(house: House) -> Iterator[Finding]:
    """Root modules and packages in no layer of import-linter, neither as a whole nor in all their parts."""
    contracts = tomllib.loads(house.read(LAYERS)).get("tool", {}).get("importlinter", {}).get("contracts", [])
    named = set()
    for contract in contracts:
        if contract.get("type") == "layers":
            for layer in contract.get("layers", []):
                for module in re.split(r"[:|]", layer):
                    named.add(module.strip(" ()").removeprefix("qbull."))
    for room, path in _rooms(house).items():
        module = room.rstrip("/").removesuffix(".py")
        inside = {name for name in named if name.startswith(f"{module}.")}
        if module == "__init__" or module in named:
            continue
        if not inside:
            yield Finding(path, 1, f"qbull.{module} is in no layer of {LAYERS}")
        for source in house.modules:
            part = source.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if inside and source.room == module and part != module and not _covers(inside, part):
                yield source.at(1, f"qbull.{part} is in no layer of {LAYERS}")


def _covers(layers: set[str], module: str) -> bool:
    return any(module == layer or module.startswith(f"{layer}.") for layer in layers)


def rooms_on_map(text: str) -> dict[str, int]:
    """The names below `src/qbull/` in the map, with their lines: `  app.py queue.py    what they are`."""
    found: dict[str, int] = {}
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() == "src/qbull/":
            inside = True
        elif inside and not line.startswith("  "):
            break
        elif inside and (match := re.match(r"  (\S+(?: \S+)*)(  |$)", line)):
            found |= dict.fromkeys(match[1].split(), number)
    return found


def map_of_rooms(house: House) -> Iterator[Finding]:
    """Rooms that the map leaves out, and rooms of the map that do not exist."""
    rooms, shown = _rooms(house), rooms_on_map(house.read(MAP))
    for room, path in rooms.items():
        if room not in shown:
            yield Finding(path, 1, f"{room} is not on the map in {MAP}")
    for room, line in shown.items():
        if room not in rooms:
            yield Finding(MAP, line, f"{room} is on the map and does not exist")


def protocols(house: House) -> Iterator[Finding]:
    """Protocols that are no extension point: they describe App, Queue or another class a second time."""
    for source in house.modules:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and node.name not in EXTENSION_POINTS:
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
                if bases & {"Protocol", "typing.Protocol"}:
                    yield source.at(node.lineno, f"Protocol {node.name} is no known extension point")
