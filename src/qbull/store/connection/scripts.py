"""Loads the Lua script of each verb. The headers become local names, so that contract and code cannot drift.

The header of a script (lua/<verb>.lua) describes its arguments. A word may stand on several lines:

    -- KEYS  base                    → local base = KEYS[1]
    -- NAMES index lanes             → local index = base .. 'index' …
    -- ARGV  limit:int owner … rest  → local limit = tonumber(ARGV[1]) …, and `rest`, the position of the list
    -- USES  record lane             → the files of lua/lib that it calls itself
    -- FLAGS allow-oom               → the script's flags

A library file (lua/lib/<name>.lua) has a header too. The loader follows its `USES`, adds its `NAMES`, and
checks that every script has the keys and arguments of its `NEEDS`:

    -- NEEDS base limit
    -- NAMES lanes
    -- USES  record index
    -- COMMIT write_lanes

A library file collects its changes. Its `COMMIT` names the functions that write them, and the loader makes
one `commit()` out of those of all files, in the order of `COMMIT_STEPS`. A verb calls it once, at its end.

The library `record_layout` has no file: it is the constants of core/record_layout.py. The loader writes their
values into the text, because a Lua function has at most 200 local names.

Scripts are called by digest, so two versions of qbull can share a server during a rolling deploy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from qbull.core.record_layout import LUA_CONSTANTS

_HEADER_PATTERN = re.compile(r"^-- (KEYS|NAMES|ARGV|USES|FLAGS|NEEDS|COMMIT)\s+(.*)$")
_OWN_NUMBER_PATTERN = re.compile(r"^local ([A-Z][A-Z_]+) = ([0-9]+)$", re.MULTILINE)
_LOCAL_PATTERN = re.compile(r"^local (?:function (\w+)|(\w+(?:, \w+)*))", re.MULTILINE)
_WORD_PATTERN = re.compile(r"\w+")
_CONSTANT_PATTERN = re.compile(rf"\b(?:{'|'.join(LUA_CONSTANTS)})\b")
_LUA_FOLDER = files("qbull.store").joinpath("lua")

RECORD_LAYOUT = "record_layout"
MAX_OUTER_NAMES = 60
"""Variables of enclosing functions that a Lua function can use."""
MIN_SCOPE_NAMES = 20
"""New local variables after which a script continues in a nested function."""
COMMIT_STEPS = (
    # Lanes send their next jobs, which changes the index, the trains and the counts of lanes.
    "send_next_jobs",
    "write_dropped_entries",
    # Finished jobs are written to the index after those that left it.
    "write_index",
    "write_finished",
    "write_lanes",
    # Entries of finished jobs that the index no longer names.
    "write_taken",
    "write_reports",
    "write_onward",
    "write_counts",
    "trim_finished",
    "tell_due",
    "tell_waiters",
)
"""The order in which `commit()` writes the changes that the library files have collected."""


class BrokenScript(Exception):
    """The header of a script or of a library file asks for something that does not exist."""


class Script(msgspec.Struct, frozen=True):
    name: str
    source: str
    digest: str


@cache
def script(name: str, *, test_clock: bool = False) -> Script:
    """The script of a verb, with its local names and the library files that it needs.

    With `test_clock`, it runs on a clock that tests can move forward (store/clock.py).
    """
    return load_script(name, prelude=_read(_LUA_FOLDER, "lib/moved.lua") if test_clock else "")


def load_script(name: str, folder: Traversable = _LUA_FOLDER, prelude: str = "") -> Script:
    """Put a script together.

    Args:
        name: The verb, which is the file's name.
        folder: The folder that has the scripts and, in `lib`, the library files.
        prelude: Lua that comes before everything else.

    Raises:
        BrokenScript: A library file is missing, uses itself, or needs something the script does not have.
    """
    body = _read(folder, f"{name}.lua")
    header = _header(body)
    libraries = _libraries(folder, name, header)
    keys, arguments = header["KEYS"].split(), _argument_names(header)
    for part, (_, needs) in libraries.items():
        for missing in set(needs.get("NEEDS", "").split()) - {*keys, *arguments}:
            raise BrokenScript(
                f'lua/{name}.lua uses lib/{part}.lua, which needs "{missing}": '
                "it is neither a key nor an argument of the script"
            )
    names = _unique(header, *(needs for _, needs in libraries.values()))
    for short in names:
        if short in {*keys, *arguments}:
            raise BrokenScript(f'lua/{name}.lua: "{short}" is a name and also a key or an argument')
    lines = [f"#!lua flags={header.get('FLAGS', '')}".removesuffix(" flags="), *prelude.splitlines()]
    lines += [f"local {key} = KEYS[{i}]" for i, key in enumerate(keys, 1)]
    lines += [f"local {short} = {keys[0]} .. '{short}'" for short in names]
    lines += _argument_lines(header)
    texts = [text for text, _ in libraries.values()]
    commit = _commit(name, body, (needs for _, needs in libraries.values()))
    text = _with_own_numbers(_in_scopes(["\n".join(lines), *texts, "\n".join([*commit, body])]))
    source = _with_constants(text) if RECORD_LAYOUT in libraries else text
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _libraries(
    folder: Traversable, name: str, header: dict[str, str]
) -> dict[str, tuple[str, dict[str, str]]]:
    """The library files that a script needs, each once and after those that it uses itself: text, header."""
    found: dict[str, tuple[str, dict[str, str]]] = {}

    def add(part: str, way: tuple[str, ...]) -> None:
        if part in way:
            raise BrokenScript(f"lua/{name}.lua: library files use each other: {' → '.join([*way, part])}")
        if part in found:
            return
        try:
            text = "" if part == RECORD_LAYOUT else _read(folder, f"lib/{part}.lua")
        except FileNotFoundError:
            user = f"lib/{way[-1]}.lua" if way else f"lua/{name}.lua"
            raise BrokenScript(f"{user} uses lib/{part}.lua, which does not exist") from None
        needs = _header(text)
        for other in needs.get("USES", "").split():
            add(other, (*way, part))
        found[part] = text, needs

    for part in header.get("USES", "").split():
        add(part, ())
    return found


def _in_scopes(parts: list[str]) -> str:
    """The parts as one text, in functions that are nested.

    When Lua creates a function, it searches each local variable that the function uses among all that are in
    use and were declared later. For a script with 100 functions this took half of the time of a short call.
    The variables of an enclosing function need no search.
    """
    used_after = [_words("\n".join(parts[number:])) for number in range(len(parts))]
    outer: set[str] = set()
    new: set[str] = set()
    lines: list[str] = []
    scopes = 0
    for part, used in zip(parts, used_after, strict=True):
        if len(new) >= MIN_SCOPE_NAMES and len((outer | new) & used) <= MAX_OUTER_NAMES:
            lines.append("return (function()")
            scopes += 1
            outer |= new
            new = set()
        lines.append(part)
        new |= _declared(part)
    return "\n".join([*lines, *["end)()"] * scopes])


def _words(text: str) -> set[str]:
    return {word for line in text.splitlines() for word in _WORD_PATTERN.findall(line.partition("--")[0])}


def _declared(part: str) -> set[str]:
    """The local variables of a part, without the numbers that take the places of their names."""
    found = _LOCAL_PATTERN.findall(_OWN_NUMBER_PATTERN.sub("", part))
    return {name for function, names in found for name in ([function] if function else names.split(", "))}


def _with_own_numbers(text: str) -> str:
    """The text with the numbers that its files name (`local BUNDLE = 16`) in place of the names.

    A Lua function has at most 200 local variables, and a script is one function.
    """
    numbers = {match[1]: match[2] for match in _OWN_NUMBER_PATTERN.finditer(text)}
    if not numbers:
        return text
    pattern = re.compile(rf"\b({'|'.join(numbers)})\b")
    lines = (line.partition("--") for line in _OWN_NUMBER_PATTERN.sub("", text).splitlines())
    return "\n".join(
        pattern.sub(lambda match: numbers[match[0]], code) + mark + comment for code, mark, comment in lines
    )


def _with_constants(text: str) -> str:
    """The text with the values of the record's layout in place of their names, except in comments."""

    def value(match: re.Match[str]) -> str:
        constant = LUA_CONSTANTS[match[0]]
        return str(constant) if isinstance(constant, int) else repr(constant)

    lines = (line.partition("--") for line in text.splitlines())
    return "\n".join(_CONSTANT_PATTERN.sub(value, code) + mark + comment for code, mark, comment in lines)


def _commit(name: str, body: str, libraries: Iterable[dict[str, str]]) -> list[str]:
    """The function that writes the collected changes of these library files, if the script calls it."""
    steps = [step for header in libraries for step in header.get("COMMIT", "").split()]
    for unknown in set(steps) - set(COMMIT_STEPS):
        raise BrokenScript(f'lua/{name}.lua: "{unknown}" has no place in COMMIT_STEPS')
    if "commit()" not in body:
        return []
    return ["local function commit()", *(f"  {step}()" for step in COMMIT_STEPS if step in steps), "end"]


def _unique(*headers: dict[str, str]) -> Iterable[str]:
    return dict.fromkeys(short for header in headers for short in header.get("NAMES", "").split())


def _argument_names(header: dict[str, str]) -> list[str]:
    fixed, more, _ = header.get("ARGV", "").partition("…")
    return [argument.partition(":")[0] for argument in fixed.split()] + (["rest"] if more else [])


def _argument_lines(header: dict[str, str]) -> list[str]:
    fixed, more, _ = header.get("ARGV", "").partition("…")
    lines = []
    for position, argument in enumerate(fixed.split(), 1):
        name, _, kind = argument.partition(":")
        value = f"ARGV[{position}]"
        lines.append(f"local {name} = {f'tonumber({value})' if kind == 'int' else value}")
    if more:
        lines.append(f"local rest = {len(fixed.split()) + 1}")
    return lines


def _header(source: str) -> dict[str, str]:
    """The header of a file, by its words."""
    found: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        if match := _HEADER_PATTERN.match(line):
            found[match[1]] = f"{found.get(match[1], '')} {match[2]}".strip()
    return found


def _read(folder: Traversable, name: str) -> str:
    return folder.joinpath(*name.split("/")).read_text()
