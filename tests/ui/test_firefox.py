"""Firefox: people log in, every view opens without an error, numbers are live, and an action works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from dashboard_server import PASSWORD, VIEWS, DashboardServer
from firefox import FirefoxTab, open_firefox, path

from needed_tools import needs_tool

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("ui"),
    needs_tool(path(), "no Firefox: install the package firefox-esr"),
]


@pytest_asyncio.fixture(loop_scope="session", name="tab")
async def make_tab(tmp_path: Path) -> AsyncIterator[FirefoxTab]:
    async with open_firefox(tmp_path) as tab:
        yield tab


async def test_the_dashboard_works_in_firefox(dashboard: DashboardServer, tab: FirefoxTab) -> None:
    await tab.go(f"{dashboard.url}/ui/")
    await tab.until("document.querySelector('input[type=password]') !== null")
    await tab.click("document.querySelector('input[type=password]')")
    await tab.type(PASSWORD + "\ue007")
    await tab.until("document.querySelector('h1')?.textContent === 'Overview'")

    for view in VIEWS:
        await tab.go(f"{dashboard.url}/ui/{view}")
        await tab.until("!!document.querySelector('main h1') && !document.querySelector('.bone')")
        assert await tab.run("document.querySelector('.blank.bad')?.textContent ?? ''") == "", view

    await tab.go(f"{dashboard.url}/ui/queues")
    await tab.until("document.querySelector('.live.live') !== null")
    row = "[...document.querySelectorAll('tbody tr')].find((one) => one.textContent.startsWith('slack'))"
    await tab.until(f"!!{row}")
    await tab.click(f"{row}.querySelector('button')")
    await tab.until(f"{row}.textContent.includes('paused')")
    assert dashboard.ask("GET", "queues/slack/stats")["isPaused"]

    # The API resumes it, and the page hears of that without being asked.
    dashboard.ask("POST", "queues/slack/resume")
    await tab.until(f"!{row}.textContent.includes('paused')")
    assert tab.wrong == []
