"""Lints of sizes: columns, lines of a file, lines of a function, parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from house.source import Finding, House, Source
from house.tables import PUBLIC_ROOMS

MAX_COLUMNS = 110
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


def columns(house: House) -> Iterator[Finding]:
    """Wide lines. The formatter leaves comments, docstrings and long strings alone."""
    for source in house.sources:
        for number, line in enumerate(source.lines, 1):
            if len(line) > MAX_COLUMNS:
                yield source.at(number, f"{len(line)} columns")


def long_files(house: House) -> Iterator[Finding]:
    for source in house.sources:
        if len(source.lines) > MAX_FILE_LINES:
            yield source.at(1, f"{len(source.lines)} lines")


@cache
def functions(source: Source) -> list[tuple[list[str], Function]]:
    """Every function of a module with the names of the classes and functions around it, its own last."""
    found: list[tuple[list[str], Function]] = []
    todo: list[tuple[list[str], ast.AST]] = [([], source.tree)]
    for path, node in todo:
        inner = path
        if isinstance(node, Function | ast.ClassDef):
            inner = [*path, node.name]
        if isinstance(node, Function):
            found.append((inner, node))
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                todo.extend((inner, child) for child in children)
    return found


def _lua_functions(source: Source) -> Iterator[tuple[int, int]]:
    """The first line and the length of every Lua function, which ends with `end` in its own indentation."""
    for number, line in enumerate(source.lines):
        match = re.match(r"(\s*)(local )?(function\b|[\w.]+ = function\b)", line)
        if match and not re.search(r"\bend\b", line):
            ends = re.compile(rf"{match[1]}end\b")
            rest = source.lines[number:]
            yield number + 1, next((n for n, later in enumerate(rest, 1) if ends.match(later)), len(rest))


def long_functions(house: House) -> Iterator[Finding]:
    for source in house.sources:
        if source.is_python:
            for path, function in functions(source):
                length = (function.end_lineno or function.lineno) - function.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    yield source.at(function.lineno, f"{'.'.join(path)} has {length} lines")
        else:
            for line, length in _lua_functions(source):
                if length > MAX_FUNCTION_LINES:
                    yield source.at(line, f"this function has {length} lines")


def _many_parameters(house: House) -> Iterator[tuple[Source, list[str], Function, int]]:
    for source in house.modules:
        for path, function in functions(source):
            arguments = function.args
            names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
            number = len(names) + len(arguments.kwonlyargs) - (names[:1] in (["self"], ["cls"]))
            decorators = [ast.unparse(one).rpartition(".")[2] for one in function.decorator_list]
            if number > MAX_PARAMETERS and "overload" not in decorators:
                yield source, path, function, number


def parameters(house: House) -> Iterator[Finding]:
    for source, path, function, number in _many_parameters(house):
        yield source.at(function.lineno, f"{'.'.join(path)} has {number} parameters")


def private_parameters(house: House) -> Iterator[Finding]:
    public = _public_names(house)
    for source, path, function, number in _many_parameters(house):
        if not _is_public(source, path, function, public):
            yield source.at(function.lineno, f"{'.'.join(path)} has {number} parameters and is not public")


def _public_names(house: House) -> set[str]:
    """`qbull.__all__`."""
    for source in house.root_modules:
        if source.name == "__init__.py":
            for statement in source.tree.body:
                if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                    return set(ast.literal_eval(statement.value))
    return set()


def _is_public(source: Source, path: list[str], function: Function, public: set[str]) -> bool:
    """Users call it: a public name or its method, a command of the CLI, or a function of a public room."""
    dunder = function.name.startswith("__") and function.name.endswith("__")
    words = [*source.name.removesuffix(".py").split("/"), *(path[:-1] if dunder else path)]
    if any(word.startswith("_") and word != "__init__" for word in words):
        return False
    command = any(ast.unparse(one).partition("(")[0].endswith(".command") for one in function.decorator_list)
    return path[0] in public or command or source.room in PUBLIC_ROOMS
