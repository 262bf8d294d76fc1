"""A server that is started later than those who need it, as containers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from topology import COMMON, PASSWORD, Node

AWAY, BACK = "work goes on when it is back", "is back after"
"""What is said once of a server that is away, and once when it is back."""


@pytest.fixture(name="later")
def claim_a_place(tmp_path: Path) -> Iterator[Node]:
    """Its address is known, and nobody has started it yet."""
    node = Node(tmp_path / "later", COMMON)
    node.claim()
    yield node
    node.kill()


def url_of(node: Node, password: str = PASSWORD) -> str:
    return f"redis://:{password}@{node.place}/0"
