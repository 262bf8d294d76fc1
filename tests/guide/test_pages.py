"""The pages of the guide: each has its tests, its examples are Python, and its links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DOCS = TESTS.parent.parent / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "guides").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_is_python(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        compile(block, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in link]

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_file_of_the_guide_has_its_page() -> None:
    files = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} - {"pages"}

    assert files - {page.stem for page in PAGES} == set()


def test_the_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text()

    assert [page.name for page in PAGES[1:] if f"(guides/{page.name})" not in index] == []
