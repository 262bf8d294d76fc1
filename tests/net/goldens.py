"""Golden files: facts about qbull that others rely on. If one changes, the diff of the commit shows it."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
REMEDY = "If the change is deliberate, run: QBULL_GOLDEN=write make test ARGS=tests/net"


def compare(name: str, found: str) -> None:
    """Fail with a diff if `found` differs from the golden file; with QBULL_GOLDEN=write, write the file."""
    path = FOLDER / name
    found = found.rstrip("\n") + "\n"
    if os.environ.get("QBULL_GOLDEN") == "write":
        path.write_text(found)
        return
    recorded = path.read_text() if path.exists() else ""
    if found == recorded:
        return
    diff = unified_diff(
        recorded.splitlines(),
        found.splitlines(),
        f"recorded in tests/net/golden/{name}",
        "found",
        lineterm="",
        n=2,
    )
    pytest.fail("\n".join([*diff, "", REMEDY]), pytrace=False)
