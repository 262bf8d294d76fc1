"""The outcome of a foreign test: why it does not pass, in one word and one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qbull.errors import QbullError

PASS, INTERNALS, REFUSED, DIFFERS, SKIPPED = "pass", "touches internals", "refused", "differs", "skipped"
OUTCOMES = (PASS, INTERNALS, REFUSED, DIFFERS, SKIPPED)
MAX_REASON_CHARS = 150
REDIS_OBJECTS = ("App", "Lock", "Producer")
"""Objects of qbull that stand where a foreign test has a connection to Redis."""


class NotInTheDoor(Exception):
    """A test uses a name that the door does not have."""

    def __init__(self, name: str, why: str | None = None) -> None:
        super().__init__(f"{name}: {why}" if why else name)
        self.is_hinted = why is not None


def outcome_of(outcome: str, raised: Any) -> tuple[str, str]:
    """The outcome of one test and its reason, from what pytest reports."""
    if outcome == "passed":
        return PASS, ""
    if raised is None:
        return DIFFERS, "a subtest fails"
    error = raised.value
    text = one_line(str(error))
    if outcome == "skipped":
        return SKIPPED, text
    if isinstance(error, NotInTheDoor):
        return (REFUSED if error.is_hinted else INTERNALS), text
    if isinstance(error, AttributeError):
        return _of_attribute(error, text)
    if isinstance(error, QbullError):
        return REFUSED, text
    return DIFFERS, f"{type(error).__name__}: {text}"


def _of_attribute(error: AttributeError, text: str) -> tuple[str, str]:
    """A missing attribute with a hint is a refusal; another one is an internal of the foreign library."""
    is_hinted = "has no attribute" not in text and "does not have the attribute" not in text
    return (REFUSED if is_hinted else INTERNALS), text


def one_line(text: str) -> str:
    """The first line without what is different in each run: ids, addresses and times."""
    line = next(iter(text.strip().splitlines()), "")
    line = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}", "<id>", line)
    line = re.sub(r"0x[0-9a-f]+", "<address>", line)
    line = re.sub(r"datetime\.datetime\([^)]*\)|\d{4}-\d\d-\d\d[T ][0-9:.+]*", "<time>", line)
    line = re.sub(r"\b\d+\.\d{3,}\b", "<number>", line)
    return line[:MAX_REASON_CHARS].rstrip()


def read_expected(path: Path) -> dict[str, tuple[str, str]]:
    """The file of expected outcomes: a line for each test with its id, its outcome and the reason."""
    rows = (line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {name: (outcome, reason) for name, outcome, reason in rows}


def write_expected(path: Path, found: dict[str, Any]) -> None:
    """Renew the file."""
    lines = ["# test\toutcome\treason", *("\t".join((n, *found[n])) for n in sorted(found))]
    path.write_text("\n".join(lines) + "\n")
