"""The pages of the guide: each file of tests has its page. That their examples run and their links lead somewhere is in tests/docs."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent.parent / "docs"
INDEX = DOCS / "guides/index.md"
GUIDES = sorted(set((DOCS / "guides").glob("*.md")) - {INDEX})
PAGES = {page.stem for page in [*GUIDES, *(DOCS / "operate").glob("*.md")]}


def test_every_file_of_the_guide_has_its_page() -> None:
    """It is named after the page; more words may follow."""
    files = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} - {"pages"}

    assert {file for file in files if not any(f"{file}_".startswith(f"{page}_") for page in PAGES)} == set()


def test_the_index_names_every_page() -> None:
    index = INDEX.read_text()

    assert [page.name for page in GUIDES if f"({page.name})" not in index] == []
