"""Each row of the checklist in SECURITY.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    line.split("|")
    for line in (ROOT / "SECURITY.md").read_text().splitlines()
    if line.startswith("|") and "tests/" in line
]


def test_there_are_rows() -> None:
    assert len(ROWS) >= 25


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip())
def test_a_row_names_tests_that_are_there(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row[-2])

    assert named
    for file, test in named:
        assert (ROOT / file).is_file(), file
        assert not test or re.search(rf"def {test}\(", (ROOT / file).read_text()), f"{file}::{test}"
