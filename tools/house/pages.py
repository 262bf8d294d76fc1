"""Lints of the English on the pages: everything in Markdown that a reader of the repository or the site meets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from house.prose import ADVICE, IDIOM
from house.source import Finding, House

PAGES = ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/*/README.md")
# Idioms that a page has no use for, and the plain English for each. Comments of the code may have them.
WORDS = {
    r"\b(?:no|some)body\b": "no one, a person, an attacker, a user",
    r"\bgo(?:es|ing)? on\b": "continues",
    r"\banew\b": "again",
    r"\b(?:after|every|for|of) so many\b": "a number of",
    r"\b(?:is|are|was|were) said\b": "is reported, is logged",
    r"\bthat is none\b": "that is not a …",
    r"\bhowever (?:often|many|long)\b": "regardless of, no matter how",
    r"\btaken for dead\b": "declared dead",
    r"\bbecomes? of\b": "happens to",
    r"\bleave (?:it |them )?away\b|\bleft away\b": "omit",
    r"\bthere (?:is|are):": "name the things",
    r"\bshall\b": "must, will",
}
WORD = re.compile("|".join(f"(?P<w{number}>{word})" for number, word in enumerate(WORDS)), re.IGNORECASE)
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
        if file.name in FOREIGN or "docs/es" in file.as_posix():
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


def words(house: House) -> Iterator[Finding]:
    """Idioms of the list above, decisions excepted: they are records of their time."""
    advice = list(WORDS.values())
    for page, number, line in pages(house):
        if not page.startswith("docs/decisions/"):
            for match in WORD.finditer(line):
                yield Finding(page, number, f'"{match[0]}": {advice[int((match.lastgroup or "w0")[1:])]}')


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
