"""The spelling of the pages, and of docstrings, comments and messages: a dictionary, and our own list of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from spylls.hunspell import Dictionary

from house.pages import pages
from house.prose import texts
from house.source import Finding, House

LIST = Path(__file__).parent / "words.txt"
ADVICE = "correct it, or add it to tools/house/words.txt"
# A word of prose: names with capitals inside, paths, flags, calls and placeholders are code without its marks.
WORD = re.compile(r"(?<![\w./{%@#$\\-])[A-Za-z][a-z]+(?:'[a-z]+)?(?![\w/(=}]|\.[a-z]|-[a-z]*[A-Z])")
ADDRESS = re.compile(r"\b[a-z+]+://\S+|<[^>\n]*>|\S+@\S+")


@cache
def dictionary() -> Dictionary:
    return Dictionary.from_files("en_US")


@cache
def own_words() -> frozenset[str]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(line.lower() for line in lines if line and not line.startswith("#"))


@cache
def is_known(word: str) -> bool:
    plain = word.removesuffix("'s")
    return plain.lower() in own_words() or any(dictionary().lookup(one) for one in (plain, word))


def spelling(house: House) -> Iterator[Finding]:
    """Words that are neither in the dictionary nor in the list."""
    for page, number, line in pages(house):
        for word in unknown_words(line):
            yield Finding(page, number, f'"{word}": {ADVICE}')
    for source in house.sources:
        for number, text in texts(source):
            for word in unknown_words(text):
                yield source.at(number, f'"{word}": {ADVICE}')


def unknown_words(text: str) -> list[str]:
    return [word for word in WORD.findall(ADDRESS.sub(" ", text)) if not is_known(word)]
