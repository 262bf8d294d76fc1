"""A server of a test's own, which it may harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbull.embedded.server import EmbeddedServer


@pytest.fixture(name="own")
def open_own(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    embedded = EmbeddedServer.open(tmp_path / "own")
    yield f"unix://:{embedded.password}@{embedded.socket}"
    embedded.close()
