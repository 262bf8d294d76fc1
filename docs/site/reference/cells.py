"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell(one) for one in line) + " |\n" for line in lines)


def cell(text: str) -> str:
    """A cell on one line. A bar in code needs no mark: it does not end the cell."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""
