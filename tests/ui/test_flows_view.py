"""Flows: told apart, found, retried and cancelled as a whole, and readable if they are large."""

from __future__ import annotations

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("ui")]

# A job that changes is drawn anew, so its element may be gone when Playwright looks at it.
STEP_WIDTH = '() => document.querySelector(".flow-graph .step").getBoundingClientRect().width'
OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll(".flow-graph .step")].map((one) => one.getBoundingClientRect());
    return boxes.flatMap((a, n) => boxes.slice(n + 1).filter((b) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
}"""


def begin(dashboard: DashboardServer, task: str, order: str) -> str:
    """A flow of an order; gives the id of its last job."""
    made = dashboard.enqueue("maintenance", task, {"order": order})
    return str(dashboard.until("maintenance", made, "completed")["result"])


async def test_flows_are_told_apart_by_arguments_and_found(dashboard: DashboardServer, admin: Person) -> None:
    begin(dashboard, "place", "blue-lamp")
    begin(dashboard, "place", "red-mug")

    page = await admin.go("flows")

    rows = page.locator("table.flows tbody tr")
    await expect(rows.filter(has_text="order=blue-lamp")).to_have_count(1)
    await page.get_by_label("Find a flow").fill("red-mug ship")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("reserve → ship")
    assert "find=red-mug" in page.url
    await page.get_by_role("button", name="running", exact=True).click()
    await page.get_by_role("button", name="completed", exact=True).click()
    await expect(rows).to_have_count(1)
    assert admin.wrong == []


async def test_a_flow_is_retried_and_cancelled_as_a_whole(dashboard: DashboardServer, admin: Person) -> None:
    begin(dashboard, "place", "sold out")
    dashboard.ask("POST", "queues/orders/pause")
    begin(dashboard, "place", "green-chair")
    page = await admin.go("flows?find=green-chair")
    row = page.locator("table.flows tbody tr")

    await row.get_by_role("button", name="Cancel the flow").click()
    await admin.confirm("Cancel the flow")
    await expect(row).to_contain_text("cancelled")
    dashboard.ask("POST", "queues/orders/resume")
    await row.get_by_role("button", name="Retry the flow").click()
    await admin.confirm("Retry the flow")

    await expect(row.locator("td .tag")).to_have_text("completed")
    await page.get_by_label("Find a flow").fill("sold out")
    await expect(row.first).to_contain_text("failed")
    assert admin.wrong == []


async def test_a_flow_of_many_jobs_stays_readable(dashboard: DashboardServer, admin: Person) -> None:
    last = begin(dashboard, "weave", "big")

    page = await admin.go(f"job?queue=orders&id={last}")

    await expect(page.locator(".flow-graph .step")).to_have_count(38)
    await expect(page.locator(".flow-tools")).to_contain_text("38 jobs")
    assert await page.evaluate(OVERLAPS) == 0
    before = await page.evaluate(STEP_WIDTH)
    await page.get_by_role("button", name="Zoom in").click()
    await page.wait_for_function(f"before => ({STEP_WIDTH})() > before", arg=before)
    assert admin.wrong == []


async def test_an_older_flow_is_found_by_a_search_of_all(dashboard: DashboardServer, admin: Person) -> None:
    begin(dashboard, "place", "the-very-first")
    for n in range(26):
        last = begin(dashboard, "place", f"newer-{n}")
    dashboard.until("orders", last, "completed")
    page = await admin.go("flows")
    rows = page.locator("table.flows tbody tr")
    await expect(rows.filter(has_text="newer-25")).to_have_count(1)
    await expect(rows.filter(has_text="the-very-first")).to_have_count(0)

    await page.get_by_label("Find a flow").fill("the-very-first")
    await expect(rows).to_have_count(1)
    await expect(page.get_by_role("status").filter(has_text="read")).to_contain_text("1 flow · all ")

    await page.get_by_label("Find a flow").fill("")
    await admin.press("Show older ones")
    await expect(rows.filter(has_text="the-very-first")).to_have_count(1)
    assert admin.wrong == []
