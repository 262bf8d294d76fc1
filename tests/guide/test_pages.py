"""The pages of the guide: each file of tests has its page. That their examples run and their links lead somewhere is in tests/docs."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent.parent / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "guides").glob("*.md"))]


def test_every_file_of_the_guide_has_its_page() -> None:
    files = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} - {"pages"}

    assert files - {page.stem for page in PAGES} == set()


def test_the_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text()

    assert [page.name for page in PAGES[1:] if f"(guides/{page.name})" not in index] == []
