"""The button for single sign-on, in a real browser: to a real provider and back to the view that was asked for."""

from __future__ import annotations

import pytest
from dashboard_server import DashboardServer
from playwright.async_api import Browser, expect
from test_single_sign_on import signing_on

import qbull
from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


async def test_the_button_leads_to_the_provider_and_back_to_the_view(
    dashboard: DashboardServer, browser: Browser
) -> None:
    app = qbull.App(dashboard.environment["QBULL_URL"], prefix="dashboard")
    async with app, signing_on(app, label='Log in with "Shop" & co') as there:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{there.web.url}/ui/workers")
        await page.get_by_role("link", name='Log in with "Shop" & co').click()

        await expect(page.get_by_role("heading", name="Workers")).to_be_visible()
        assert page.url == f"{there.web.url}/ui/workers"
        await expect(page.locator("aside")).to_contain_text("ada@example.com")
        await page.locator("aside").get_by_role("button", name="Log out", exact=True).first.click()
        await expect(page.get_by_role("heading", name="Log in to qbull")).to_be_visible()
        await context.close()


async def test_without_a_provider_there_is_no_button(dashboard: DashboardServer, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{dashboard.url}/ui/")
    await expect(page.get_by_role("heading", name="Log in to qbull")).to_be_visible()

    assert await page.locator(".door-card a").count() == 0
    await context.close()
