"""The first pages in Spanish: the same code, links and sections as the English pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, TRANSLATED, blocks_of, links_of

PAGES = sorted(TRANSLATED.rglob("*.md"))
SHAPE = re.compile(r"^(#+ |- |\| |```|<!-- )", re.MULTILINE)


def english(page: Path) -> Path:
    return DOCS / page.relative_to(TRANSLATED)


def targets(page: Path) -> list[str]:
    """The pages that a page leads to; a page that is translated counts as its English one."""
    found = []
    for link in links_of(page):
        path, mark, heading = link.partition("#")
        there = (page.parent / path).resolve()
        if there.is_relative_to(TRANSLATED):
            there = english(there)
        found.append(f"{there}{mark}{heading}")
    return found


def test_the_first_ten_pages_are_there() -> None:
    assert len(PAGES) == 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TRANSLATED).as_posix())
def test_a_page_has_the_code_and_the_links_of_the_english_page(page: Path) -> None:
    ours, theirs = (
        [(block.language, block.text) for block in blocks_of(one)] for one in (page, english(page))
    )
    assert ours == theirs

    there = targets(english(page))
    if page.name == "index.md" and page.parent == TRANSLATED:
        there = there[: len(targets(page))]
    assert targets(page) == there


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TRANSLATED).as_posix())
def test_a_page_has_the_sections_of_the_english_page(page: Path) -> None:
    ours, theirs = (SHAPE.findall(one.read_text()) for one in (page, english(page)))

    assert ours == theirs[: len(ours)]
    assert len(theirs) - len(ours) == (1 if page == TRANSLATED / "index.md" else 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TRANSLATED).as_posix())
def test_numbers_have_one_format(page: Path) -> None:
    prose = re.sub(r"(?ms)^```.*?^```$|`[^`]*`", "", page.read_text())

    assert re.findall(r"\b\d{1,3},\d{3}\b", prose) == []
