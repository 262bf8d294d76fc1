"""Read the repository: every source file once, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "src/qbull"
# Built from ui/ and not tracked.
BUILT = "ui"


@dataclass(frozen=True, order=True)
class Finding:
    """One violation, at a line of a file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.message}"


class Source:
    """One source file. `path` is relative to the repository, `name` to the package."""

    def __init__(self, file: Path, repository: Path) -> None:
        self.path = file.relative_to(repository).as_posix()
        self.name = file.relative_to(repository / PACKAGE).as_posix()
        self.text = file.read_text(encoding="utf-8")
        self.lines = self.text.splitlines()
        self.is_python = file.suffix == ".py"

    @property
    def room(self) -> str:
        """The package directly below the root that the file is in, or an empty string for a root module."""
        return self.name.partition("/")[0] if "/" in self.name else ""

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def at(self, line: int, message: str) -> Finding:
        return Finding(self.path, line, message)

    def top_level(self) -> Iterator[ast.stmt]:
        """The statements of the module, those inside `if`, `try` and `with` included."""
        todo: list[ast.stmt] = list(self.tree.body)
        while todo:
            statement = todo.pop(0)
            yield statement
            if isinstance(statement, ast.If | ast.Try | ast.With):
                for field in ("body", "orelse", "finalbody"):
                    todo.extend(getattr(statement, field, []))
                for handler in getattr(statement, "handlers", []):
                    todo.extend(handler.body)


class House:
    """A repository to check."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.package = repository / PACKAGE

    @cached_property
    def sources(self) -> list[Source]:
        files = [*self.package.rglob("*.py"), *self.package.rglob("*.lua")]
        inside = (file for file in files if file.relative_to(self.package).parts[0] != BUILT)
        return [Source(file, self.repository) for file in sorted(inside)]

    @cached_property
    def modules(self) -> list[Source]:
        return [source for source in self.sources if source.is_python]

    @cached_property
    def root_modules(self) -> list[Source]:
        """The modules beside the rooms, without the entry point of `python -m qbull`."""
        return [source for source in self.modules if not source.room and source.name != "__main__.py"]

    @cached_property
    def packages(self) -> list[str]:
        return sorted(file.parent.name for file in self.package.glob("*/__init__.py"))

    def read(self, path: str) -> str:
        """The text of another file of the repository; empty if there is none."""
        file = self.repository / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""
