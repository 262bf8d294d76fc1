"""The code of a page of the guide: what is between its fences, section by section."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
OLD = ("# Celery", "# RQ")
PLACE = "redis://localhost:6379/0"


class Page:
    """`url` takes the place of the address that the page names."""

    def __init__(self, name: str, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self.text = (GUIDES / f"{name}.md").read_text()

    def code(self, section: str, *, old: bool = False) -> list[str]:
        """The blocks of a section: those of qbull, or those of what is moved away from."""
        body = self.text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
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
