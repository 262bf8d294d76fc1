"""What the tests of ordinary days share: the app on the test's server, and the log to which its tasks write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import everyday_app
import pytest

from qbull.store.store import Store


@pytest.fixture
async def log(
    tmp_path: Path, store: Store, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """The log that tasks of everyday_app write, while the app is connected to the server of the test."""
    monkeypatch.setattr(everyday_app.app, "url", server_url)
    yield tmp_path / "log"
    await everyday_app.app.close()
