"""Lints of the English on the pages: everything in Markdown that a reader of the repository or the site meets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from house.prose import ADVICE, IDIOM
from house.source import Finding, House

PAGES = ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/*/README.md")
# In other languages.
FOREIGN = {"README.es.md"}
FENCE = re.compile(r"^ *```")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
TARGET = re.compile(r"(?<=\])\([^)]*\)")
# A clause that starts with "what", as its subject. A question may.
WHAT = re.compile(r"(?:^[\s>*-]*|[.!?;:] )(?:And |But )?[Ww]hat (?![^.!]*\?)")
WHERE = re.compile(r"\b[Ww]here\b")
# "where" of a place: after a word that asks for a place, or before one that names it.
PLACE = re.compile(
    r"\b(?:places?|points?|line|directory|file|page|table|module|know|knows|knew|see|shows?|says|said|tells?|decides?|is|and|,|\|)"
    r" [Ww]here (?:to|the|a|an|its|your|it|each|large|people|jobs|they|you|\[|`)[ \w`\[]"
)


def pages(house: House) -> Iterator[tuple[str, int, str]]:
    """The lines of all pages without code, links and headings: (page, line, text)."""
    files = {file for pattern in PAGES for file in house.repository.glob(pattern)}
    for file in sorted(files):
        if file.name in FOREIGN:
            continue
        inside = False
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if FENCE.match(line):
                inside = not inside
            elif not inside and not line.startswith("#"):
                words = TARGET.sub("", CODE.sub("`", line))
                yield file.relative_to(house.repository).as_posix(), number, words


def idioms(house: House) -> Iterator[Finding]:
    """Idioms of the table of `prose`, "whoever" among them."""
    for page, number, line in pages(house):
        for match in IDIOM.finditer(line):
            advice = ADVICE[int((match.lastgroup or "i0")[1:])]
            if not match[0].strip(" .:;!?").startswith("What"):
                yield Finding(page, number, f'"{match[0].strip()}": {advice}')


def what(house: House) -> Iterator[Finding]:
    """`what` as the subject of a sentence."""
    for page, number, line in pages(house):
        for _ in WHAT.finditer(line):
            yield Finding(page, number, 'start with a noun, not with "what"')


def where(house: House) -> Iterator[Finding]:
    """`where` for `if`."""
    for page, number, line in pages(house):
        places = len(PLACE.findall(line))
        for _ in range(len(WHERE.findall(line)) - places):
            yield Finding(page, number, '"where": if, unless it is a place')
