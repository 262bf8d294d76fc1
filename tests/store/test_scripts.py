"""Scripts: the loader gives each verb the library files that it needs, and refuses what does not fit together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import qbull.store
from qbull.core.record_layout import LUA_CONSTANTS
from qbull.store.connection.scripts import COMMIT_STEPS, RECORD_LAYOUT, BrokenScript, load_script, script
from qbull.store.store import Store

LUA = Path(qbull.store.__path__[0]) / "lua"
VERBS = sorted(path.stem for path in LUA.glob("*.lua"))
LIBRARIES = sorted(path.stem for path in (LUA / "lib").glob("*.lua"))

KEYWORDS = set(
    re.findall(
        r"\w+",
        "and break do else elseif end false for function if in local nil not or repeat return then true until while",
    )
)
BUILT_IN = set(
    re.findall(
        r"\w+",
        "ARGV KEYS bit cjson ipairs math next pairs pcall redis cmsgpack setmetatable string table tonumber tostring type unpack",
    )
)


def write(folder: Path, **files: str) -> Path:
    (folder / "lib").mkdir()
    for name, text in files.items():
        part = name.removeprefix("lib_")
        (folder / ("lib" if name.startswith("lib_") else ".") / f"{part}.lua").write_text(text)
    return folder


def test_a_script_gets_the_libraries_of_its_libraries_each_once_and_in_order(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- USES  roof wall\nreturn roof()",
        lib_roof="-- USES  wall\nlocal function roof() return wall() end",
        lib_wall="-- USES  ground\nlocal function wall() return ground end",
        lib_ground="local ground = 1",
    )

    source = load_script("verb", folder).source

    places = [source.index(f"local {text}") for text in ("ground", "function wall", "function roof")]
    assert places == sorted(places)
    assert source.count("local ground") == 1


async def test_a_long_script_continues_in_nested_functions(tmp_path: Path, store: Store) -> None:
    """More than 60 names of enclosing functions cannot be used: then a script stays in the present one."""
    libraries = {
        f"lib_part{part}": "\n".join(f"local function n{part}x{n}() return {n} end" for n in range(25))
        for part in range(4)
    }
    used = "\n".join(f"sum = sum + n{part}x{n}()" for part in range(4) for n in range(25))
    folder = write(
        tmp_path,
        verb=f"-- KEYS  base\n-- USES  part0 part1 part2 part3\nlocal sum = 0\n{used}\nreturn sum",
        **libraries,
    )

    source = load_script("verb", folder).source

    assert source.count("return (function()") == 2
    assert await store.server.call("EVAL", source, 1, "{base}:") == 4 * sum(range(25))


def test_a_number_with_a_name_takes_no_local_variable(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- USES  wall\nlocal MOST = 12\nreturn wall(MOST) -- at MOST",
        lib_wall="local BRICKS = 500\nlocal function wall(n) return n * BRICKS + 'MOST_BRICKS' end",
    )

    source = load_script("verb", folder).source

    assert re.findall(r"^local (\w+)", source, re.MULTILINE) == ["base", "function"]
    assert "return n * 500 + 'MOST_BRICKS' end" in source
    assert source.endswith("return wall(12) -- at MOST")


def test_the_names_of_libraries_are_added_to_those_of_the_script(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- NAMES index\n-- USES  lane\nreturn 1",
        lib_lane="-- NEEDS base\n-- NAMES lanes index\nlocal counts = {}",
    )

    source = load_script("verb", folder).source

    assert "local index = base .. 'index'\nlocal lanes = base .. 'lanes'\n" in source


def test_a_missing_library_is_named_with_its_user(tmp_path: Path) -> None:
    folder = write(tmp_path, verb="-- KEYS  base\n-- USES  lane\nreturn 1", lib_lane="-- USES  train\n")

    with pytest.raises(BrokenScript, match=r"lib/lane\.lua uses lib/train\.lua, which does not exist"):
        load_script("verb", folder)


def test_libraries_that_use_each_other_are_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- USES  lane\nreturn 1",
        lib_lane="-- USES  train\n",
        lib_train="-- USES  lane\n",
    )

    with pytest.raises(BrokenScript, match="lane → train → lane"):
        load_script("verb", folder)


def test_a_library_that_needs_what_the_script_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- ARGV  most:int\n-- USES  lane\nreturn 1",
        lib_lane="-- NEEDS base limit\n",
    )

    with pytest.raises(BrokenScript, match=r'lua/verb\.lua uses lib/lane\.lua, which needs "limit"'):
        load_script("verb", folder)


def test_a_name_that_is_an_argument_too_is_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- ARGV  failed:int\n-- USES  dead\nreturn 1",
        lib_dead="-- NAMES failed\n",
    )

    with pytest.raises(BrokenScript, match='"failed" is a name and also a key or an argument'):
        load_script("verb", folder)


def test_commit_writes_what_the_libraries_have_collected_in_one_order(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- USES  stats index\ncommit()\nreturn 1",
        lib_stats="-- COMMIT write_counts\nlocal function write_counts() end",
        lib_index="-- COMMIT write_index\nlocal function write_index() end",
    )

    source = load_script("verb", folder).source

    assert "local function commit()\n  write_index()\n  write_counts()\nend\n" in source


def test_a_word_of_a_header_may_stand_on_several_lines(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb="-- KEYS  base\n-- ARGV  limit:int\n-- ARGV  … id\n-- USES  roof\n-- USES  wall\nreturn 1",
        lib_roof="local function roof() end",
        lib_wall="local function wall() end",
    )

    source = load_script("verb", folder).source

    assert "local function roof" in source and "local function wall" in source
    assert "local rest = 2" in source


def test_a_step_of_commit_without_a_place_in_its_order_is_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path, verb="-- KEYS  base\n-- USES  stats\ncommit()", lib_stats="-- COMMIT write_more\n"
    )

    with pytest.raises(BrokenScript, match='"write_more" has no place in COMMIT_STEPS'):
        load_script("verb", folder)


@pytest.mark.parametrize("name", [*VERBS, *(f"lib/{part}" for part in LIBRARIES)])
def test_only_commit_writes_what_was_collected(name: str) -> None:
    code = _code((LUA / f"{name}.lua").read_text())

    called = {step for step in COMMIT_STEPS if re.search(rf"(?<!function ){step}\(\)", code)}

    assert called == set()
    assert code.count("commit()") <= 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_script_can_be_put_together(verb: str) -> None:
    assert script(verb).source.startswith("#!lua")


@pytest.mark.parametrize("name", [*VERBS, *(f"lib/{part}" for part in LIBRARIES)])
def test_a_file_names_everything_that_it_uses_in_its_header_and_nothing_else(name: str) -> None:
    text = (LUA / f"{name}.lua").read_text()
    header = _header(text)
    given = {name for word in ("KEYS", "NAMES", "NEEDS") for name in header.get(word, "").split()}
    fixed, more, _ = header.get("ARGV", "").partition("…")
    arguments = {argument.partition(":")[0] for argument in fixed.split()} | ({"rest"} if more else set())
    used = _free_names(text) - {"commit"}
    by_library = {part: _names_of_library(part) for part in header["USES"].split()}

    assert used <= given.union(arguments, *by_library.values())
    assert {part for part, names in by_library.items() if not names & used} == set(), "unused libraries"
    assert set(header.get("NAMES", "").split()) <= used


async def test_every_script_compiles_with_the_test_clock_too(store: Store) -> None:
    """A Lua function has at most 200 local names, and the test clock needs some."""
    for verb in VERBS:
        for test_clock in (False, True):
            loaded = script(verb, test_clock=test_clock)
            assert await store.server.call("SCRIPT", "LOAD", loaded.source) == loaded.digest.encode()


def _names_of_library(part: str) -> set[str]:
    return (
        set(LUA_CONSTANTS)
        if part == RECORD_LAYOUT
        else _defined_names((LUA / "lib" / f"{part}.lua").read_text())
    )


def _header(text: str) -> dict[str, str]:
    found = {"USES": ""}
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if match := re.match(r"-- (KEYS|NAMES|ARGV|USES|NEEDS)\s+(.*)", line):
            found[match[1]] = f"{found.get(match[1], '')} {match[2]}".strip()
    return found


def _code(text: str) -> str:
    return re.sub(r"'(?:\\.|[^'\\])*'", "''", re.sub(r"--[^\n]*", "", text))


def _defined_names(text: str) -> set[str]:
    """The functions and variables at the left margin, which the files behind this one can use."""
    code = _code(text)
    functions = set(re.findall(r"^local function (\w+)", code, re.MULTILINE))
    variables = re.findall(r"^local (?!function)([\w, ]+?)(?= ?=|$)", code, re.MULTILINE)
    return functions.union(*(re.findall(r"\w+", names) for names in variables))


def _free_names(text: str) -> set[str]:
    """The names that a file uses and does not define anywhere itself."""
    code = _code(text)
    lists = re.findall(r"\blocal (?!function)([\w, ]+?)(?==|\n|$)", code)
    lists += re.findall(r"\bfunction ?\w*\(([^)]*)\)", code) + re.findall(
        r"\bfor ([\w, ]+?)(?: in\b| =)", code
    )
    own = set(re.findall(r"\blocal function (\w+)", code)).union(
        *(re.findall(r"\w+", names) for names in lists)
    )
    keys_of_tables = r"(?<=[{,])\s*\w+ ?=(?!=)"
    used = set(re.findall(r"(?<![\w.:])[A-Za-z_]\w*", re.sub(keys_of_tables, "", code)))
    return used - own - KEYWORDS - BUILT_IN
