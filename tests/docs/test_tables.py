"""A row of a table that an empty line cuts off is shown as text with bars in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import FENCE, PAGES, name_of

UNDER_A_HEADER = re.compile(r"\|[ :|-]+\|")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_has_a_header(page: Path) -> None:
    assert list(headless(page.read_text())) == []


def headless(text: str) -> Iterator[str]:
    """The first row of each table without a line below it that makes it the header."""
    lines, inside = [*text.splitlines(), ""], False
    for before, line, after in zip(["", *lines], lines, lines[1:], strict=False):
        inside ^= FENCE.match(line) is not None
        begins = line.lstrip().startswith("|") and not before.lstrip().startswith("|")
        if begins and not inside and not UNDER_A_HEADER.fullmatch(after.strip()):
            yield line


def test_a_row_that_was_cut_off_is_found() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"

    assert list(headless(f"{table}\n| 3 | 4 |\n```\n| 5 |\n```\n")) == ["| 3 | 4 |"]
