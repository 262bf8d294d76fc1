"""Shared limits in the browser: use, waiting jobs and keys; an admin changes a limit, a viewer cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

from conftest import eventually
from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


def _limit(dashboard: DashboardServer) -> dict[str, Any]:
    found = dashboard.ask("GET", "limits")["limits"]
    return next((dict(one) for one in found if one["name"] == "slack-api"), {})


async def test_a_limit_is_shown_and_changed(dashboard: DashboardServer, admin: Person) -> None:
    for _ in range(5):
        dashboard.enqueue("slack", "digest", {"channel": "#limited"})

    async def three_wait() -> bool:
        return _limit(dashboard).get("waiting") == 3

    await eventually(three_wait, within=40)
    page = await admin.go("limits")
    card = page.locator("section.card", has_text="slack-api")
    await expect(card).to_contain_text("3 jobs wait for it")
    await expect(card.locator("tbody tr", has_text="#limited").locator("td").nth(1)).to_have_text("2")
    await expect(card.get_by_role("link", name="slack", exact=True)).to_have_attribute(
        "href", re.compile("jobs")
    )

    await card.get_by_role("button", name="Change the limit slack-api").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Weight in the window").fill("100")
    await dialog.get_by_label("Reason, for the audit log").fill("the service allows more")
    await dialog.get_by_role("button", name="Change", exact=True).click()
    await expect(card).to_contain_text("No job waits for it", timeout=20_000)
    await expect(card.get_by_text("changed")).to_be_visible()
    entries = dashboard.ask("GET", "audit")["entries"]
    changed = next(one for one in entries if one["action"] == "change limit")
    assert (changed["target"], changed["reason"]) == ("slack-api", "the service allows more")

    await card.get_by_role("button", name="Change the limit slack-api").click()
    await page.get_by_role("button", name="Everything as in the code").click()
    await expect(card.get_by_text("changed")).to_have_count(0)
    assert _limit(dashboard)["rate"]["count"] == 2


async def test_a_viewer_sees_limits_and_changes_none(dashboard: DashboardServer, viewer: Person) -> None:
    page = await viewer.go("limits")

    await expect(page.locator("section.card", has_text="slack-api")).to_be_visible()
    await expect(page.get_by_role("button", name="Change the limit slack-api")).to_have_count(0)


async def test_the_limits_speak_spanish(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("limits")
    await page.get_by_role("button", name="Español").click()
    await expect(page.locator("h1")).to_have_text("Límites")
    await expect(page.locator("section.card", has_text="slack-api")).to_contain_text("En la ventana")
    await page.get_by_role("button", name="English").click()
