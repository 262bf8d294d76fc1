"""Project: the Python files under a path, parsed, and the names that they import from one another.

A dotted name that starts with "celery" is one of Celery. `celery.Celery()` stands for an app, wherever it was
made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from qbull.compat.celery.names import SHIM
from qbull.errors import ConfigError

N = TypeVar("N", bound=ast.AST)

SKIPPED_DIRECTORIES = frozenset(
    ("node_modules", "site-packages", "__pycache__", "venv", "env", "build", "dist")
)
TEST_DIRECTORIES = frozenset(("test", "tests", "testing", "unit_tests", "integration_tests", "unittests"))
UNPARENTHESIZED_EXCEPT = re.compile(rb"^(\s*except\*?\s+)([^(\n:]+,[^(\n:]+):", re.MULTILINE)
MAX_IMPORT_DEPTH = 8
"""How many modules a name is followed through."""
CELERY_APP = "celery.Celery()"
APP_CLASSES = frozenset(("celery.Celery", "celery.app.Celery", "celery.app.base.Celery"))
APP_STAND_INS = frozenset(("celery.current_app", "celery._state.current_app", "celery.app.default_app"))
TASK_CLASSES = frozenset(("celery.Task", "celery.app.task.Task", f"{CELERY_APP}.Task", "celery.task.Task"))


@dataclass
class SourceModule:
    """One file: its tree, and the names that are bound at any depth in it."""

    file: str
    parts: tuple[str, ...]
    tree: ast.Module
    names_celery: bool
    """Whether the text has the word, so that an app may be made in it."""
    origins: dict[str, str] = field(default_factory=dict)
    """The dotted name for which a local name stands."""
    bases: dict[str, list[ast.expr]] = field(default_factory=dict)
    """The bases of each class."""

    nodes: dict[type[ast.AST], list[Any]] = field(default_factory=dict)
    """All nodes of the tree by their type."""

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            self.nodes.setdefault(type(node), []).append(node)

    def of(self, kind: type[N]) -> list[N]:
        """Return the nodes of one type."""
        return self.nodes.get(kind, [])

    @property
    def package(self) -> tuple[str, ...]:
        return self.parts if self.file.endswith("__init__.py") else self.parts[:-1]


class Project:
    """All files of a project.

    Args:
        path: A directory, or one file.
        include_tests: Whether to read tests too.
    """

    def __init__(self, path: Path, *, include_tests: bool = False) -> None:
        self.modules: list[SourceModule] = []
        self.skipped_tests = 0
        self.unreadable: list[str] = []
        self._by_name: dict[str, SourceModule] = {}
        self._known: dict[str, str | None] = {}
        self._is_bound = False
        root = path if path.is_dir() else path.parent
        for file in _python_files(path):
            if not include_tests and file != path and _is_test(file.relative_to(root)):
                self.skipped_tests += 1
                continue
            self._read(root, file)
        for module in self.modules:
            _bind(module)
        for module in self.modules:
            if module.names_celery:
                _bind_apps(self, module)
        self._is_bound = True

    def origin(self, module: SourceModule, node: ast.AST) -> str | None:
        """Return the dotted name of Celery that an expression stands for; None if it is no such name."""
        dotted = self._dotted(module, node)
        if dotted is None:
            return None
        if not self._is_bound:
            return self._followed(dotted, 0)
        if dotted not in self._known:
            self._known[dotted] = self._followed(dotted, 0)
        return self._known[dotted]

    def is_app(self, module: SourceModule, node: ast.AST) -> bool:
        """Whether an expression is an app."""
        return self.origin(module, node) in (CELERY_APP, *APP_STAND_INS)

    def is_task_class(self, module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is Celery's class Task, or a class of the project that derives from it."""
        if isinstance(node, ast.Subscript):
            node = node.value
        dotted = self._dotted(module, node)
        if dotted is None or depth > MAX_IMPORT_DEPTH:
            return False
        if self._followed(dotted, 0) in TASK_CLASSES:
            return True
        home, name = self._home_of(dotted, module)
        return home is not None and any(
            self.is_task_class(home, base, depth + 1) for base in home.bases.get(name, ())
        )

    def _read(self, root: Path, file: Path) -> None:
        try:
            text = file.read_bytes()
            tree = _parsed(text)
        except (SyntaxError, ValueError):
            # A template, or a file for a newer Python.
            self.unreadable.append(str(file.relative_to(root)))
            return
        relative = file.relative_to(root)
        parts = (*_packages_above(root), *relative.with_suffix("").parts)
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        module = SourceModule(str(relative), parts, tree, b"celery" in text.lower())
        self.modules.append(module)
        for start in range(len(parts)):
            self._by_name.setdefault(".".join(parts[start:]), module)

    def _dotted(self, module: SourceModule, node: ast.AST) -> str | None:
        match node:
            case ast.Name(name):
                return module.origins.get(name, name if name in module.bases else None)
            case ast.Attribute(value, attribute):
                before = self._dotted(module, value)
                return None if before is None else f"{before}.{attribute}"
            case ast.Call(function):
                called = self._dotted(module, function)
                return None if called is None else CELERY_APP if called in APP_CLASSES else f"{called}()"
        return None

    def _followed(self, dotted: str, depth: int) -> str | None:
        """Follow a name through the modules of the project to one of Celery."""
        for start in (SHIM, "celery"):
            if dotted == start or dotted.startswith((f"{start}.", f"{start}(")):
                found = "celery" + dotted.removeprefix(start)
                return found.replace("celery.Celery().current_app", CELERY_APP)
        if depth > MAX_IMPORT_DEPTH:
            return None
        for cut in range(dotted.count("."), 0, -1):
            parts = dotted.split(".")
            home = self._by_name.get(".".join(parts[:cut]))
            if home is not None and (bound := home.origins.get(parts[cut])) is not None:
                return self._followed(".".join((bound, *parts[cut + 1 :])), depth + 1)
        return None

    def _home_of(self, dotted: str, module: SourceModule, depth: int = 0) -> tuple[SourceModule | None, str]:
        """Return the module that defines a class, and its name there."""
        owner, _, name = dotted.rpartition(".")
        home = self._by_name.get(owner) if owner else module
        if home is None or name in home.bases or depth > MAX_IMPORT_DEPTH:
            return home, name
        bound = home.origins.get(name)
        return self._home_of(bound, home, depth + 1) if bound else (None, name)


def _parsed(text: bytes) -> ast.Module:
    """Parse a file, also one with the `except A, B:` of Python 3.14."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(UNPARENTHESIZED_EXCEPT.sub(rb"\1(\2):", text))


def _packages_above(root: Path) -> list[str]:
    """The names of the packages that a directory is in, itself included."""
    names: list[str] = []
    root = root.resolve()
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    return names


def _python_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise ConfigError(f'"{path}": there is no such file or directory; give the directory of the project')
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in SKIPPED_DIRECTORIES and not entry.name.startswith("."):
                yield from _python_files(entry)
        elif entry.suffix == ".py" and entry.is_file():
            yield entry


def _is_test(file: Path) -> bool:
    is_test_file = (
        file.name.startswith("test_") or file.name.endswith("_test.py") or file.name == "conftest.py"
    )
    return is_test_file or not TEST_DIRECTORIES.isdisjoint(file.parts[:-1])


def _bind(module: SourceModule) -> None:
    """Note what each imported name and each class stands for."""
    for plain in module.of(ast.Import):
        for each in plain.names:
            bound = each.asname or each.name.partition(".")[0]
            module.origins[bound] = each.name if each.asname else bound
    for node in module.of(ast.ImportFrom):
        package = module.package[: len(module.package) - node.level + 1] if node.level else ()
        start = ".".join((*package, *((node.module,) if node.module else ())))
        for each in node.names:
            module.origins[each.asname or each.name] = f"{start}.{each.name}"
    for kind in module.of(ast.ClassDef):
        module.bases[kind.name] = kind.bases


def _bind_apps(project: Project, module: SourceModule) -> None:
    """Note which variables and functions of a module are an app, or are assigned from a name of Celery."""
    for function in module.of(ast.FunctionDef):
        if any(
            isinstance(each, ast.Call) and _makes_app(project, module, each) for each in ast.walk(function)
        ):
            module.origins.setdefault(f"{function.name}()", CELERY_APP)
    assignments: list[ast.Assign | ast.AnnAssign] = [*module.of(ast.Assign), *module.of(ast.AnnAssign)]
    for node in assignments:
        found = project.origin(module, node.value) if node.value is not None else None
        found = found or _made_by(module, node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and found and found != target.id:
                module.origins[target.id] = found


def _makes_app(project: Project, module: SourceModule, call: ast.Call) -> bool:
    return project.origin(module, call) == CELERY_APP


def _made_by(module: SourceModule, value: ast.AST | None) -> str | None:
    """The app that a function of the module returns."""
    match value:
        case ast.Call(ast.Name(name)):
            return module.origins.get(f"{name}()")
    return None
