"""Reasons: people can give one for every action, and the audit log shows it, finds it and exports it."""

from __future__ import annotations

import json
import re

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


def _reasons(dashboard: DashboardServer, action: str, target: str) -> list[str]:
    """The newest first."""
    entries = dashboard.ask("GET", "audit?limit=100")["entries"]
    return [one["reason"] for one in entries if one["action"] == action and target in one["target"]]


async def test_a_pause_asks_for_a_reason_if_the_operator_wants_that(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("access")
    await page.get_by_label("Ask me for a reason before every action").check()
    await admin.go("queues?find=slack")
    row = page.get_by_role("row", name=re.compile("slack"))

    await row.get_by_role("button", name="Pause").click()
    await expect(page.get_by_label("Reason, for the audit log")).to_be_focused()
    await page.keyboard.type("Slack has an outage")
    await page.keyboard.press("Enter")
    await expect(row.get_by_text("paused")).to_be_visible()
    assert _reasons(dashboard, "pause queue", "slack")[0] == "Slack has an outage"
    await admin.undo("slack is paused")
    await expect(row.get_by_text("paused")).to_have_count(0)
    assert _reasons(dashboard, "resume queue", "slack")[0] == "Undo"

    await row.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(row.get_by_role("button", name="Pause")).to_be_enabled()
    assert not dashboard.ask("GET", "queues/slack/stats")["isPaused"]


async def test_a_removed_job_has_its_reason_even_if_the_page_is_left(
    dashboard: DashboardServer, admin: Person
) -> None:
    call = {"user_id": "u", "address": "a@b.c"}
    id = dashboard.enqueue("email", "welcome", call, delay=3600)
    page = await admin.go(f"job?queue=email&id={id}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("ask me for a reason")
    await page.keyboard.press("Enter")

    await admin.press("Remove")
    await expect(page.get_by_label("Reason, for the audit log")).to_be_focused()
    await page.keyboard.type("sent by mistake")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Jobs")
    await page.goto(f"{dashboard.url}/ui/access?find=sent+by+mistake")

    await expect(page.locator("tr", has_text="sent by mistake")).to_contain_text("remove job")


async def test_the_reason_of_a_bulk_action_is_in_every_entry_of_it(
    dashboard: DashboardServer, admin: Person
) -> None:
    for queue, task in (("email", "welcome"), ("payments", "charge")):
        call = (
            {"user_id": "wave", "address": "a@b.c"} if queue == "email" else {"account": "wave", "amount": 1}
        )
        for _ in range(2):
            dashboard.enqueue(queue, task, call, delay=3600)
    page = await admin.go("jobs?q=state%3Adelayed+wave")
    await expect(page.locator("tbody tr")).to_have_count(4)

    await page.get_by_label("Select all shown").check()
    await admin.press("Cancel")
    await page.get_by_label("Reason, for the audit log").fill("the wave is over")
    await admin.confirm("Cancel (4)")

    await expect(page.get_by_text("Cancel: 4 jobs")).to_be_visible()
    await admin.go("access")
    await page.get_by_label("Search the audit log").fill("the wave is over")
    rows = page.locator(".card", has=page.get_by_role("heading", name="Audit")).locator("tbody tr")
    await expect(rows).to_have_count(4)
    await expect(page).to_have_url(re.compile("find=the"))
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Export").click()
    path = await (await downloading.value).path()
    exported = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["reason"] for one in exported] == ["the wave is over"] * 4
