"""Lints of names: defined once, with units, in standard words, explained in the glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from house.source import Finding, House, Source
from house.tables import (
    GLOSSARY_WORDS,
    IMITATED_FOLDERS,
    IMITATED_NAMES,
    PROTOCOL_NUMBERS,
    RETIRED_WORDS,
    SAME_MEANING,
)

CONSTANT = re.compile(r"_*[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
TYPE_VARIABLES = ("TypeVar", "ParamSpec", "TypeVarTuple")

TIMES = "SECONDS MS US NS MINUTES HOURS DAYS"
SIZES = "BYTES KIB MIB GIB BITS CHARS LINES COLUMNS"
COUNTS = (
    "COUNT ATTEMPTS CRASHES JOBS ROWS ENTRIES KEYS CALLS LEVELS PARTITIONS PERCENT RATIO FACTOR DEPTH WIDTH"
)
# A batch, a page and a sample are counted in what their name says they consist of.
SETS = "BATCH_SIZE PAGE_SIZE SAMPLE_SIZE"
# Numbers that measure nothing.
LABELS = "CODE STATUS PORT VERSION OFFSET INDEX PRIORITY ID FLAG"
WITH_UNIT = re.compile(
    rf".+_({'|'.join(' '.join((TIMES, SIZES, COUNTS, SETS, LABELS)).split())})"
    # SECONDS_PER_DAY, JOBS_PER_CALL
    r"|.+_PER_.+"
    # MAX_PARTITIONS, MIN_REPLICAS_IN_SYNC: a plural noun says what is counted
    r"|(MAX|MIN)_(.+_)?[A-Z]+[A-RT-Z]S(_(PER|IN|AT|OF|FOR)_.+)?"
)
GLOSSARY = "docs/concepts/glossary.md"


def constants(source: Source) -> Iterator[tuple[str, int, ast.expr]]:
    """The ALL_CAPS names that a module defines: name, line and value."""
    for statement in source.top_level():
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        else:
            continue
        value = statement.value
        assert value is not None
        for target in targets:
            if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id):
                yield target.id, statement.lineno, value


def _is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in TYPE_VARIABLES


def _is_alias(name: str, value: ast.expr) -> bool:
    """`LIMIT = other.LIMIT` passes a name on and defines nothing."""
    return isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value).rpartition(".")[2] == name


def _is_imitated(name: str, source: Source) -> bool:
    return source.room == "compat" and name in IMITATED_NAMES


def clashes(house: House) -> Iterator[Finding]:
    """Class and constant names that several modules define."""
    places: dict[str, dict[Source, int]] = defaultdict(dict)
    for source in house.modules:
        for statement in source.top_level():
            if isinstance(statement, ast.ClassDef) and not _is_imitated(statement.name, source):
                places[statement.name.lstrip("_")].setdefault(source, statement.lineno)
        for name, line, value in constants(source):
            if not _is_type_variable(value) and not _is_alias(name, value):
                places[name.lstrip("_")].setdefault(source, line)
    for name, where in sorted(places.items()):
        if len(where) > 1 and name not in SAME_MEANING:
            (first, line), *others = where.items()
            also = ", ".join(f"{source.name}:{at}" for source, at in others)
            yield first.at(line, f"{name} is also defined in {also}")


def _is_number(value: ast.expr) -> bool:
    """A literal number, or arithmetic with at least one."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    return isinstance(value, ast.BinOp) and (_is_number(value.left) or _is_number(value.right))


def units(house: House) -> Iterator[Finding]:
    """Numbers whose names do not tell seconds from bytes from jobs."""
    for source in house.modules:
        for name, line, value in constants(source):
            short = name.lstrip("_")
            if _is_number(value) and short not in PROTOCOL_NUMBERS and not WITH_UNIT.fullmatch(short):
                yield source.at(line, f"{name} = {ast.unparse(value)} has no unit in its name")


def retired(house: House) -> Iterator[Finding]:
    """Files and folders that are named with a retired word."""
    seen = set()
    for source in house.sources:
        *folders, file = source.name.split("/")
        for depth, folder in enumerate(folders, 1):
            path = "/".join(folders[:depth])
            if folder in RETIRED_WORDS and path not in seen and path not in IMITATED_FOLDERS:
                seen.add(path)
                yield source.at(
                    1, f"the folder {path}/ is named with a retired word: {RETIRED_WORDS[folder]}"
                )
        stem = file.partition(".")[0].lstrip("_")
        if stem in RETIRED_WORDS:
            yield source.at(1, f'"{stem}" is a retired word: {RETIRED_WORDS[stem]}')


def _entries(glossary: str) -> set[str]:
    """The words that the glossary explains: bold text and headings."""
    found = re.findall(r"\*\*(.+?)\*\*|^#{2,} +(.+)$", glossary, re.M)
    words = (word for bold, heading in found for word in re.split(r", | / ", bold or heading))
    return {_singular(word) for word in words}


def _singular(word: str) -> str:
    return word.strip().lower().removesuffix("s")


def glossary(house: House) -> Iterator[Finding]:
    """House words without an entry in the glossary."""
    entries = _entries(house.read(GLOSSARY))
    for word in GLOSSARY_WORDS:
        if _singular(word) not in entries:
            yield Finding(GLOSSARY, 1, f'"{word}" has no entry')
