"""The truth about an incident, counted by the tasks themselves, and what the overview says of it at the same moment."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page

ERRORS = {
    "template": "KeyError: 'first_name'",
    "refused": "ConnectionError: smtp.example.com refused the connection",
    "busy": "TimeoutError: 421 the mail server is busy",
}
"""The first line of each kind of error, as the overview shows it."""

SHOWN = """() => [...document.querySelectorAll(".failing li")].map((one) => [
    one.querySelector(".error-text").textContent,
    Number(one.querySelector(".row-count").textContent.replaceAll(",", "")),
])"""

Counts = dict[str, int]


def raised(directory: Path) -> Counts:
    """How often each error was raised until now."""
    return {kind: _size(directory / kind) for kind in ERRORS}


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def shown(page: Page) -> Counts:
    """The numbers on the overview."""
    rows = dict(await page.evaluate(SHOWN))
    return {kind: int(rows.get(error, 0)) for kind, error in ERRORS.items()}
