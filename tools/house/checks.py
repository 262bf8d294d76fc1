"""The list of all counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from house import facts, names, pages, prose, rooms, sizes, spelling
from house.source import Finding, House


@dataclass(frozen=True)
class Check:
    """One count: the number of findings of `find`, which must become `goal` or less."""

    name: str
    goal: int
    says: str
    find: Callable[[House], Iterable[Finding]]


CHECKS = (
    Check("root", 12, "modules in the root of the package", rooms.root_modules),
    Check("layers", 0, "rooms in no import layer", rooms.layers),
    Check("map", 0, "rooms missing from the map, or only on it", rooms.map_of_rooms),
    Check("protocols", 0, "Protocols that are no extension point", rooms.protocols),
    Check("clashes", 0, "class and constant names with several meanings", names.clashes),
    Check("units", 0, "numeric constants without a unit", names.units),
    Check("retired", 0, "files named with a retired word", names.retired),
    Check("glossary", 0, "house words missing from the glossary", names.glossary),
    Check("columns", 0, f"lines over {sizes.MAX_COLUMNS} columns", sizes.columns),
    Check("files", 0, f"files over {sizes.MAX_FILE_LINES} lines", sizes.long_files),
    Check("functions", 0, f"functions over {sizes.MAX_FUNCTION_LINES} lines", sizes.long_functions),
    Check("parameters", 10, f"functions over {sizes.MAX_PARAMETERS} parameters", sizes.parameters),
    Check("private", 0, "of these, not public", sizes.private_parameters),
    Check("option", 3, f"files that list the job option {facts.OPTION}", facts.option),
    Check("durability", 1, f'files that spell the durability "{facts.DURABILITY}"', facts.durability),
    Check("backoff", 1, f'files that spell the backoff "{facts.BACKOFF}"', facts.backoff),
    Check("prose", 0, "idioms in comments, docstrings and messages", prose.prose),
    Check("where", 20, '"where" that may mean "if"', prose.conditions),
    Check("page-idiom", 0, "idioms on the pages", pages.idioms),
    Check("page-word", 0, "words that read like a translation on the pages", pages.words),
    Check("page-what", 0, '"what" as a subject on the pages', pages.what),
    Check("page-where", 0, '"where" for "if" on the pages', pages.where),
    Check("spelling", 0, "words that no dictionary has", spelling.spelling),
)
