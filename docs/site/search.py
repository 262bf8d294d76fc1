"""Check the site's search: each word of search_words.txt must find its page.

`make docs` asks the site itself in a browser. Tests, which have no built site, ask `check()`: a small model of the site's own
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
LISTS = ("index", "guides/index", "concepts/index", "operate/index", "internals/index", "examples/index")
"""Pages that only lead to others."""
GENERATED_TEXT_LENGTH = 160
"""How much of a generated section can be searched beside its title."""
GENERATED_SHARE = 0.3
"""What a page counts that is generated or for contributors."""


WORD_START = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9])")
JOINER = "\N{WORD JOINER}"
"""Before a word of a title, it hides the word from the search and not from the reader: the engine ranks every title above text."""


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


def make_quiet(index: Path) -> None:
    """Let guides come first: pages that only lead to others and those in Spanish are left out, and generated pages are found by their text only."""
    found = json.loads(index.read_text())
    kept = [
        item for item in found["items"] if not page_of(item).startswith("es/") and page_of(item) not in LISTS
    ]
    for item in kept:
        if page_of(item).startswith(GENERATED):
            words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", item["text"])).split())
            item["text"] = html.escape(words[:GENERATED_TEXT_LENGTH])
            item["title"] = WORD_START.sub(JOINER, item["title"])
            item["path"] = item["path"][:2]
    index.write_text(json.dumps({**found, "items": kept}, ensure_ascii=False))


def page_of(item: dict[str, str]) -> str:
    return item["location"].partition("#")[0].removesuffix(".html")


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
        if section.page.startswith("es/") or section.page.removesuffix(".md") in LISTS:
            continue
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
