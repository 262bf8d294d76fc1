"""Latency in the browser: percentiles by task, the span in the address, zoom by dragging, a click on a minute."""

from __future__ import annotations

import re

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


async def _alerts(dashboard: DashboardServer) -> None:
    """Jobs whose times the workers have reported."""
    for n in range(5):
        dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": f"latency {n}"})
    await eventually(lambda: _runs(dashboard, 5), within=40)


async def test_a_zoom_loads_finer_steps(dashboard: DashboardServer, admin: Person) -> None:
    await _alerts(dashboard)
    page = await admin.go("queue?name=slack&span=24h")
    heat = page.locator("canvas.heat")
    await heat.scroll_into_view_if_needed()
    box = await heat.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await expect(page.locator(".chart", has=heat)).to_contain_text("darker: more runs")
    for part in range(198, 160, -1):  # some step at the right has runs
        await page.mouse.move(box["x"] + box["width"] * part / 200, middle)
        if await page.locator(".heat-part").count():
            break
    await expect(page.locator(".chart", has=heat).locator("figcaption")).to_contain_text(
        re.compile(r"\d+ runs?,")
    )

    async with page.expect_response(lambda one: "latency" in one.url and "from=" in one.url) as answer:
        await page.mouse.move(box["x"] + box["width"] * 0.93, middle)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] * 0.985, middle, steps=5)
        await page.mouse.up()

    told = await (await answer.value).json()
    assert (told["stepSeconds"], told["total"]["runs"] >= 5) == (60, True)
    await expect(page).to_have_url(re.compile(r"span=24h&zoom=\d+-\d+"))
    await admin.reload()
    await expect(page.get_by_role("button", name="Reset the zoom").first).to_be_visible()
    await expect(heat).to_have_attribute("aria-label", re.compile(f"{told['total']['runs']} runs"))


async def test_a_minute_of_the_overview_shows_its_jobs(dashboard: DashboardServer, admin: Person) -> None:
    await _alerts(dashboard)
    page = await admin.go("")
    chart = page.get_by_role("img", name=re.compile("^Jobs per minute")).locator(".u-over")
    box = await chart.bounding_box()
    assert box is not None

    await page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)

    await expect(page.locator("h1")).to_have_text("Jobs")
    await expect(page).to_have_url(re.compile("since.*until"))


async def test_charts_and_the_heat_map_work_with_the_keyboard(
    dashboard: DashboardServer, admin: Person
) -> None:
    await _alerts(dashboard)
    page = await admin.go("queue?name=slack")
    heat = page.get_by_role("slider", name="Run times as a heat map, step by step")
    await heat.focus()
    await page.keyboard.press("+")
    await expect(page).to_have_url(re.compile("zoom="))
    await heat.focus()
    await page.keyboard.press("-")
    await expect(page).not_to_have_url(re.compile("zoom="))

    chart = page.get_by_role("slider", name="Jobs per minute, step by step")
    await chart.focus()
    await page.keyboard.press("Home")
    await expect(chart).to_have_attribute("aria-valuenow", "0")
    first = await chart.get_attribute("aria-valuetext")
    await page.keyboard.press("ArrowRight")
    await expect(chart).to_have_attribute("aria-valuenow", "1")
    assert re.match(r"\d\d:\d\d, enqueued ", first or "") and first != await chart.get_attribute(
        "aria-valuetext"
    )
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Jobs")
    await expect(page).to_have_url(re.compile("since.*until"))
