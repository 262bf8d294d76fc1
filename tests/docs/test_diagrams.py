"""The diagrams: each picture is what its description draws, fits both themes, and is on a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from pages import DOCS, PAGES

from diagrams.drawing import WrongDescription, draw, read

DESCRIPTIONS = sorted((DOCS / "diagrams").glob("*.txt"))


def test_there_are_at_least_twelve() -> None:
    assert len(DESCRIPTIONS) >= 12


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=lambda path: path.stem)
def test_a_picture_is_what_its_description_draws(description: Path) -> None:
    picture = DOCS / "images" / f"{description.stem}.svg"

    assert picture.read_text() == draw(description.read_text()), "run `make diagrams`"


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=lambda path: path.stem)
def test_a_picture_fits_both_themes_and_says_what_it_shows(description: Path) -> None:
    drawing = read(description.read_text())
    svg = draw(description.read_text())

    assert ET.fromstring(svg).attrib["aria-label"] == drawing.title
    assert len(drawing.title) > 40
    assert "prefers-color-scheme: dark" in svg
    assert drawing.tight == [], "labels that are wider than their boxes"
    outside = [shape for shape in drawing.shapes.values() if shape.x + shape.width > drawing.width]
    assert outside == []


def test_every_picture_is_on_a_page() -> None:
    named = "".join(page.read_text() for page in PAGES)

    assert [path.stem for path in DESCRIPTIONS if f"images/{path.stem}.svg" not in named] == []


@pytest.mark.parametrize(
    "line", ["circle a 1 2 3", "box a 1 2", "arrow nowhere.left other.right", "size 10 20", 'text x 1 "a"']
)
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(WrongDescription, match=f"line 2: {re.escape(line)}"):
        draw(f'size 100 100 "title"\n{line}')
