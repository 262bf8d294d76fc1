"""A real Chromium for the tests: the system's own, or the one that Playwright has installed."""

from __future__ import annotations

import shutil

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
"""A test asks nobody on the network but the server that it tests."""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def options() -> dict[str, object]:
    """How to launch it. Without a path Playwright looks for its own."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    return {"executable_path": path, "args": QUIET}
