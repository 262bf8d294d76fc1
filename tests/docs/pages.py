"""The Markdown pages of the project as tests read them: their blocks of code, their headings, their links.

A block that is not run has a line before it that says why: `<!-- not run: … -->`. How many there may be is a number in test_blocks.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").glob("*/README.md"),
    }
)
TRANSLATED = DOCS / "es"
"""Pages in Spanish. Their code is that of the English pages, which test_spanish.py checks."""
NOT_RUN = re.compile(r"<!-- not run: (\S.*\S) -->")
FENCE = re.compile(r"^( *)```(\S*)(.*)$")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)")
SOURCE = re.compile(r"<(?:a|img|source)\s[^>]*?(?:href|src|srcset)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    not_run: str

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    """What stands between fences, in order."""
    before, start, language, indent, inside = "", 0, "", 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not start:
            start, language, indent, inside = number, fence[2], len(fence[1]), []
        elif fence and not fence[2]:
            why = NOT_RUN.fullmatch(before)
            yield Block(page, start + 1, language, "\n".join(inside) + "\n", why[1] if why else "")
            start, before = 0, ""
        elif start:
            inside.append(line[indent:])
        elif line.strip():
            before = line.strip()
    assert not start, f"{name_of(page)}:{start}: a fence that is not closed"


def prose_of(page: Path) -> str:
    """A page without its blocks of code and without code in lines."""
    kept, inside = [], False
    for line in page.read_text().splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda code: "x" * len(code[0]), line))
    return "\n".join(kept)


def links_of(page: Path) -> list[str]:
    return [*LINK.findall(prose_of(page)), *SOURCE.findall(prose_of(page))]


def anchors_of(page: Path) -> set[str]:
    """What can stand behind a #: the headings, as GitHub and the site spell them."""
    text, found = page.read_text(), set[str]()
    inside = False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside and (heading := re.match(r"#{1,6} +(.*?)(?: *\{#([\w-]+)\})? *$", line)):
            found.add(heading[2] or anchor(heading[1]))
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
