"""Redis names: from the docstring of qbull.store.names, which has every one of them."""

from __future__ import annotations

import re

from qbull.store import names
from reference.cells import code, table

KINDS = ("stream", "hash", "zset", "list", "set", "string", "channel")


def page() -> str:
    lead, _, rest = (names.__doc__ or "").partition("    {")
    parts = [
        _part(text) for text in re.split(r"^    (?=[{<])", "    {" + rest, flags=re.MULTILINE) if text.strip()
    ]
    return f"# Redis names\n\n{lead.split(chr(10), 1)[1].strip()}\n\n" + "\n".join(parts)


def entries(text: str) -> list[tuple[str, str, str]]:
    """Name, type and meaning of each; a meaning may go on in the next lines."""
    found: list[tuple[str, str, str]] = []
    pending = ""
    for line in text.splitlines():
        match = re.match(rf"      (\S.*?)?\s+({'|'.join(KINDS)})\s+(\S.*)$", line)
        if match and (match[1] or pending):
            found.append((match[1] or pending, match[2], match[3]))
            pending = ""
        elif re.match(r"      \S", line):
            pending = line.strip()
        elif line.strip() and found:
            name, kind, meaning = found[-1]
            found[-1] = (name, kind, f"{meaning} {line.strip()}")
    return found


def _part(text: str) -> str:
    head, _, below = text.partition("\n")
    if head.startswith("<"):  # channels, of which each is a line of its own
        found = re.findall(r"(<prefix>:\w+)\s+(channel)\s+((?:.|\n)+?)(?=\n    <|\Z)", text)
        return "## Channels\n\n" + table(("name", "type", "meaning"), [(code(n), k, m) for n, k, m in found])
    rows = [(code(name), kind, meaning) for name, kind, meaning in entries(below)]
    return f"## {code(head.strip().rstrip(':'))}\n\n" + table(("name", "type", "meaning"), rows)
