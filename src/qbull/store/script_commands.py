"""Script commands: the commands that a script can reach, read from its Lua. Rights follow from them."""

from __future__ import annotations

import functools
import re

from qbull.store.connection.scripts import script

_LUA_FUNCTION_PATTERN = re.compile(r"local function (\w+)\(")
_LUA_WORD_PATTERN = re.compile(r"\w+")
_LUA_CALL_PATTERN = re.compile(r"(?:redis\.p?call|in_chunks)\('([A-Z_]+)'(?:, '([A-Z]+)')?")
_CONTAINER_COMMANDS = ("XGROUP", "XINFO")


@functools.cache
def commands_of(verb: str) -> frozenset[str]:
    """The commands that a script can reach: those outside functions, and those in functions that it calls."""
    functions, main = _split_functions(re.sub(r"--.*", "", script(verb).source))
    calls, reached, waiting = set[str](), set[str](), [main]
    while waiting:
        text = waiting.pop()
        for command, sub in _LUA_CALL_PATTERN.findall(text):
            calls.add(f"{command}|{sub}".lower() if command in _CONTAINER_COMMANDS else command.lower())
        called = functions.keys() & set(_LUA_WORD_PATTERN.findall(text)) - reached
        reached |= called
        waiting += [functions[name] for name in called]
    return frozenset(calls)


def _split_functions(source: str) -> tuple[dict[str, str], str]:
    """The functions of a script by name, and the rest. Functions are one line, or end at the left margin."""
    functions: dict[str, str] = {}
    main, inside = "", None
    for line in source.splitlines():
        head = _LUA_FUNCTION_PATTERN.match(line)
        if head:
            functions[head.group(1)] = line
            inside = None if line.rstrip().endswith(" end") else head.group(1)
        elif inside is not None:
            functions[inside] += "\n" + line
            inside = None if line.rstrip() == "end" else inside
        else:
            main += line + "\n"
    return functions, main
