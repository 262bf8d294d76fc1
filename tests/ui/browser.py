"""A real Chromium for the tests: the system's own, or the one that Playwright has installed."""

from __future__ import annotations

import shutil

from playwright.sync_api import Browser, Error, Playwright

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


class NoBrowser(Exception):
    """There is none, and why."""


def launch(play: Playwright) -> Browser:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    try:
        return play.chromium.launch(executable_path=path, args=QUIET)
    except Error as error:
        first = str(error).strip().splitlines()[0]
        raise NoBrowser(
            f"no Chromium: {first}; install the package chromium, or run: playwright install chromium"
        ) from None
