"""Latency in the browser: percentiles by task, the span in the address, zoom by dragging, a click on a minute."""

from __future__ import annotations

import re

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

from conftest import eventually
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    pytest.mark.skipif(not Built()._there, reason="the dashboard was not built: Node.js is needed for that"),
]


async def _runs(dashboard: DashboardServer, n: int) -> bool:
    return bool(dashboard.ask("GET", "queues/slack/latency")["total"]["runs"] >= n)


async def test_percentiles_of_a_queue_and_the_jobs_of_a_minute(
    dashboard: DashboardServer, admin: Person
) -> None:
    for n in range(5):
        dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": f"latency {n}"})
    await eventually(lambda: _runs(dashboard, 5), within=40)
    page = await admin.go("queue?name=slack")

    row = page.locator(".latency tbody tr", has_text="alert")
    await expect(row).to_contain_text("ms")
    await expect(page.get_by_role("img", name=re.compile("Run time. p50: .* ms, p95"))).to_be_visible()
    await page.get_by_role("button", name="24 h").click()
    await expect(page).to_have_url(re.compile("span=24h"))
    await admin.reload()
    await expect(page.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
    await row.get_by_role("button", name="alert").click()
    await expect(page.get_by_role("heading", name="Latency of alert")).to_be_visible()
    await page.get_by_role("button", name="1 h", exact=True).click()

    chart = page.get_by_role("img", name=re.compile("^Jobs per minute")).locator(".u-over")
    await chart.scroll_into_view_if_needed()
    box = await chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"zoom=\d+-\d+"))
    await page.get_by_role("button", name="Reset the zoom").first.click()
    await expect(page).not_to_have_url(re.compile("zoom="))
    await page.mouse.click(box["x"] + box["width"] * 0.5, middle)
    await expect(page.locator("h1")).to_have_text("Jobs")
    await expect(page).to_have_url(re.compile("since.*until"))


async def test_a_pause_is_a_mark_in_the_charts(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.ask("POST", "queues/slack/pause")
    dashboard.ask("POST", "queues/slack/resume")

    page = await admin.go("queue?name=slack")

    await expect(page.locator(".mark-list").first).to_contain_text("slack was paused")


async def test_queues_are_sorted_by_any_column(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.fail(2, "to be sorted by")
    page = await admin.go("queues")

    await page.get_by_role("button", name="failed").click()
    await expect(page.locator("th[aria-sort=descending]")).to_contain_text("failed")

    worst = max(dashboard.ask("GET", "queues/stats")["queues"].values(), key=lambda one: int(one["failed"]))
    await expect(page.locator("tbody tr").first).to_contain_text(worst["name"])
