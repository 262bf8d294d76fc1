"""Check the site's search: each word of search_words.txt must find its page.

`make docs` calls `check()` with the index that the built site has. The words are ranked by a small model of the site's own
engine, which prefers titles to headings, headings to text, and whole words to beginnings of words.
"""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

WORDS = Path(__file__).parent / "search_words.txt"
HIT_COUNT = 3
TITLE_POINTS, HEADING_POINTS, TEXT_POINTS = 30.0, 12.0, 3.0
BEGINNING_SHARE = 0.6
"""What the beginning of a word counts, in parts of a whole word."""
GENERATED = ("reference/", "decisions/", "changelog", "internals/")
GENERATED_SHARE = 0.3
"""What a page counts that is generated or for contributors."""


@dataclass(frozen=True)
class Section:
    """One entry of the index: a page, or a part of one."""

    page: str
    level: int
    title: str
    text: str


def words() -> dict[str, str]:
    """Each word with the page that it must find."""
    lines = WORDS.read_text().splitlines()
    pairs = [line.partition(" = ") for line in lines if line and not line.startswith("#")]
    return {word.strip(): page.strip() for word, _, page in pairs}


def sections_of_site(index: Path) -> list[Section]:
    """The entries of the index of a built site."""
    return [
        Section(
            item["location"].partition("#")[0].replace(".html", ".md"),
            item["level"],
            plain(item["title"]),
            plain(item["text"]),
        )
        for item in json.loads(index.read_text())["items"]
    ]


def sections_of_page(page: str, text: str) -> list[Section]:
    """The same for a Markdown page, without its code."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", text)
    parts = [(re.match(r"(#+) (.*)", part), part) for part in re.split(r"(?m)^(?=#+ )", prose)]
    return [
        Section(page, len(heading[1]), plain(heading[2]), plain(part[heading.end() :]))
        for heading, part in parts
        if heading
    ]


def plain(text: str) -> str:
    without_links = re.sub(r"\]\([^)]*\)", "]", text)
    return html.unescape(re.sub(r"<[^>]+>|[\[\]`*_]", " ", without_links)).lower()


def hits(query: str, sections: list[Section]) -> list[str]:
    """The pages that a query finds, best first. Every word of the query must be on the page's section."""
    points: dict[str, float] = defaultdict(float)
    for section in sections:
        each = [score(word, section) for word in re.split(r"[\s-]+", query.lower())]
        if all(each):
            share = GENERATED_SHARE if section.page.startswith(GENERATED) else 1.0
            points[section.page] = max(points[section.page], share * sum(each))
    return sorted(points, key=lambda page: (-points[page], page))


def score(word: str, section: Section) -> float:
    title = TITLE_POINTS if section.level == 1 else HEADING_POINTS
    return title * part(word, section.title) + TEXT_POINTS * part(word, section.text)


def part(word: str, text: str) -> float:
    """How much of a text is about a word: more for whole words, for several of them, and for short texts."""
    whole = len(re.findall(rf"\b{re.escape(word)}\b", text))
    begun = len(re.findall(rf"\b{re.escape(word)}\w", text))
    count = whole + BEGINNING_SHARE * begun
    length = len(text.split())
    return count / (count + 0.5 + length / 200) if count else 0.0


def check(sections: list[Section]) -> list[str]:
    """The words that do not find their page among the first hits, each with what they find."""
    wrong = []
    for word, page in words().items():
        found = hits(word, sections)[:HIT_COUNT]
        if page not in found:
            wrong.append(f"{word}: {page} is not among {', '.join(found)}")
    return wrong
