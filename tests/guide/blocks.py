"""The code of a page of the guide: what is between its fences, section by section."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pages import DOCS, blocks_of

import qbull

OLD = ("# Celery", "# RQ")
PLACE = "redis://localhost:6379/0"


class Page:
    """`url` takes the place of the address that the page names."""

    def __init__(self, name: str, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self._path = DOCS / "guides" / f"{name}.md"
        self.text = self._path.read_text()

    def code(self, section: str, *, old: bool = False) -> list[str]:
        """The blocks of a section: those of qbull, or those of what is moved away from."""
        lines = self.text.splitlines()
        first = lines.index(f"## {section}")
        last = next((at for at in range(first + 1, len(lines)) if lines[at].startswith("## ")), len(lines))
        blocks = [
            block.text
            for block in blocks_of(self._path)
            if block.language == "python" and first < block.line <= last
        ]
        assert blocks, f'there is no code in "{section}"'
        return [block.replace(PLACE, self._url) for block in blocks if block.startswith(OLD) is old]

    def module(self, name: str, *blocks: str) -> ModuleType:
        """The blocks as a module that is imported, and that a worker in this directory can import too."""
        path = self._directory / f"{name}.py"
        path.write_text("\n\n".join(blocks))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture(name="closing")
def close_apps() -> Iterator[list[qbull.App]]:
    """Apps that are closed when the test has ended."""
    apps: list[qbull.App] = []
    yield apps
    for app in apps:
        app.close_sync()
