"""An operator at the dashboard: every click and key is counted by the browser itself, and compared with the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from dashboard_server import DashboardServer, Person
from playwright.async_api import Locator, Page, expect

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"
_ROW = re.compile(r"^\| (?P<task>[^|]+?) \| (?P<clicks>\d+) \| (?P<keys>\d+) \| [^|]+ \|$", re.MULTILINE)

COUNT = """
window.counted = {clicks: 0, keys: 0};
document.addEventListener("pointerdown", (event) => { if (event.isTrusted) window.counted.clicks++; }, true);
document.addEventListener("keydown", (event) => {
  if (event.isTrusted && !["Control", "Shift", "Alt", "Meta"].includes(event.key)) window.counted.keys++;
}, true);
"""
"""Ctrl-K is one key, a pasted text is one key, and a typed text is one for each letter. Playwright stops a click that
would miss, as the page has moved, at the window: it does not reach the document, and does not count."""


class Effort(NamedTuple):
    clicks: int
    keys: int


def stated() -> dict[str, Effort]:
    """The tasks in the table of the guide."""
    text = GUIDE.read_text().split("## Seventeen tasks", 1)[1].split("\n## ", 1)[0]
    return {row["task"]: Effort(int(row["clicks"]), int(row["keys"])) for row in _ROW.finditer(text)}


class Operator:
    """Starts each task at the overview, with a mouse, a keyboard and a clipboard."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.page: Page = person.page
        self.dashboard: DashboardServer = person.dashboard

    async def start(self) -> None:
        """Open the overview. What was done before does not count."""
        await self.person.go("")
        await expect(self.page.locator(".side .live")).to_have_text("Live")
        await expect(self.page.locator(".bone")).to_have_count(0)

    async def effort(self) -> Effort:
        """The clicks and keys since the start."""
        return Effort(**await self.page.evaluate("window.counted"))

    async def click(self, what: Locator) -> None:
        await what.click()

    async def view(self, name: str) -> None:
        """Click on an entry of the side bar."""
        await self.page.locator("nav").get_by_role("link", name=re.compile(f"^{name}")).click()
        await expect(self.page.locator("h1").first).to_have_text(name)

    async def button(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).first.click()

    async def submit(self, name: str) -> None:
        """Click on the action of a dialog, which closes when it is done."""
        await self.person.confirm(name)

    async def key(self, *names: str) -> None:
        for name in names:
            await self.page.keyboard.press(name)

    async def type(self, text: str) -> None:
        await self.page.keyboard.type(text)

    async def find(self, id: str) -> None:
        """Ctrl-K, paste the id of a job, Enter."""
        await self.page.evaluate("text => navigator.clipboard.writeText(text)", id)
        field = self.page.locator("dialog input")
        await self.key("Control+k")
        await expect(field).to_be_focused()
        await self.key("Control+v")
        await expect(field).to_have_value(id)
        await self.key("Enter")
        await expect(self.page.locator(f'[title="{id}"], h1').first).to_be_visible()
        await expect(self.page).to_have_url(re.compile(f"job\\?.*{id}"))

    async def query(self, text: str) -> None:
        """g, j, /, the query, Enter."""
        await self.key("g", "j")
        await expect(self.page.get_by_role("combobox", name="Query")).to_be_visible()
        await self.key("/")
        await self.type(text)
        await self.key("Enter")
