"""The parts of a page that the site shows better than Markdown can: buttons, cards, tabs and notes.

Pages stay plain Markdown, which GitHub shows as well. Comments before a paragraph, a list or a block ask for more:
`<!-- buttons -->`, `<!-- cards -->`, and `<!-- tab: Async -->` before each of several blocks that follow each other. A note is
a quotation that starts with `[!NOTE]`, as on GitHub.
"""

from __future__ import annotations

import re

BUTTONS = re.compile(r"^<!-- buttons -->\n((?:.+\n)+)", re.MULTILINE)
CARDS = re.compile(r"^<!-- cards -->\n((?:(?:-|  ).*\n)+)", re.MULTILINE)
TAB = re.compile(r"^<!-- tab: (.+) -->\n(```.*\n(?:.*\n)*?```)$", re.MULTILINE)
NOTE = re.compile(r"^> \[!(NOTE|TIP|WARNING)\]\n((?:>.*\n)+)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")


def for_site(text: str) -> str:
    """A page as the site's own Markdown."""
    for pattern, change in ((BUTTONS, _buttons), (CARDS, _cards), (TAB, _tab), (NOTE, _note)):
        text = pattern.sub(change, text)
    return text


def _buttons(found: re.Match[str]) -> str:
    first, *others = LINK.findall(found[1])
    return (
        " ".join(
            [f"{first}{{ .md-button .md-button--primary }}", *(f"{one}{{ .md-button }}" for one in others)]
        )
        + "\n"
    )


def _cards(found: re.Match[str]) -> str:
    return f'<div class="grid cards" markdown>\n\n{found[1].strip()}\n\n</div>\n'


def _tab(found: re.Match[str]) -> str:
    return f'=== "{found[1]}"\n\n{_indented(found[2])}'


def _note(found: re.Match[str]) -> str:
    inner = re.sub(r"^> ?", "", found[2], flags=re.MULTILINE).rstrip()
    return f"!!! {found[1].lower()}\n\n{_indented(inner)}\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
