"""The search: the words that people type find the right page among the first three hits."""

from __future__ import annotations

from make_site import staged
from pages import ROOT
from search import Section, check, hits, sections_of_page, words


def sections() -> list[Section]:
    pages = {source: target for source, target in staged().items() if source.endswith(".md")}
    return [
        section
        for source, target in pages.items()
        for section in sections_of_page(target, (ROOT / source).read_text())
    ]


def test_every_word_finds_its_page() -> None:
    assert check(sections()) == []


def test_there_are_fifty_words_and_their_pages_exist() -> None:
    assert len(words()) >= 50
    assert set(words().values()) - set(staged().values()) == set()


def test_guides_come_before_generated_pages() -> None:
    guide = Section("guides/retries.md", 1, "retry", "a failed attempt")
    schema = Section("reference/rest.md", 2, "retry", "retry retry retry")

    assert hits("retry", [schema, guide]) == ["guides/retries.md", "reference/rest.md"]
    assert hits("nothing of that", [schema, guide]) == []
