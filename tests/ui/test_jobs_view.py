"""The Jobs view: one query over all queues, with completion, facets, saved views and columns."""

from __future__ import annotations

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


async def test_the_jobs_of_a_customer_are_found_over_all_queues_with_one_query(
    dashboard: DashboardServer, admin: Person
) -> None:
    """Operator task d: from any view, one key and the customer's id."""
    mail = dashboard.enqueue("email", "welcome", {"user_id": "c-606", "address": "c@example.com"})
    report = dashboard.enqueue(
        "reports", "monthly-statement", {"customer": "c-606", "month": "m", "seconds": 0.1}
    )
    dashboard.until("email", mail, "completed")
    dashboard.until("reports", report, "completed")
    page = await admin.go("workers")

    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("combobox", name="Query")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("c-606")
    await page.keyboard.press("Enter")

    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator("tbody")).to_contain_text("welcome")
    await expect(page.locator("tbody")).to_contain_text("monthly-statement")
    assert page.url.endswith("/ui/jobs?q=c-606")
    await expect(page.get_by_role("status").first).to_contain_text(re.compile(r"2 jobs · all [\d,]+ read"))


async def test_the_bar_completes_fields_and_values(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.fail(1, "the bar completes this")
    page = await admin.go("jobs")
    bar = page.get_by_role("combobox", name="Query")
    await expect(page.locator(".facet").first).to_be_visible()

    await bar.fill("sta")
    await expect(page.get_by_role("option", name="state:")).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(bar).to_have_value("state:")
    await page.get_by_role("option", name="state:failed").click()
    await bar.press_sequentially("qu")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Tab")
    await expect(bar).to_have_value("state:failed queue:")
    await bar.press_sequentially("ema")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Tab")
    await bar.press_sequentially('error:"bar completes"')
    await expect(bar).to_have_value('state:failed queue:email error:"bar completes"')
    await page.keyboard.press("Escape")
    await page.keyboard.press("Enter")

    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("the bar completes this")


async def test_a_wrong_query_says_what_is_wrong(admin: Person) -> None:
    page = await admin.go("jobs?q=colour%3Ared")

    await expect(page.get_by_role("alert")).to_contain_text('"colour" is no field; use one of queue, state')
    await page.get_by_role("button", name="Clear the query").click()
    await expect(page.locator("tbody tr").first).to_be_visible()
    admin.wrong.clear()  # The browser reports the answer 400.


async def test_facets_narrow_the_query(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.fail(2, "facets narrow this")
    page = await admin.go("jobs?q=error%3A%22facets+narrow%22")
    rail = page.get_by_role("complementary", name="Facets")

    await expect(rail.get_by_role("link", name=re.compile("failed 2"))).to_be_visible()
    await rail.get_by_role("link", name=re.compile("verify 2")).click()
    await expect(page.get_by_role("combobox", name="Query")).to_have_value(
        'error:"facets narrow" task:verify'
    )
    await expect(page.locator("tbody tr")).to_have_count(2)
    await rail.get_by_role("link", name=re.compile("verify 2")).click()
    await expect(page.get_by_role("combobox", name="Query")).to_have_value('error:"facets narrow"')


async def test_rows_are_dense_and_sorted_and_their_header_stays(
    dashboard: DashboardServer, admin: Person
) -> None:
    for _ in range(40):
        dashboard.enqueue("email", "welcome", {"user_id": "dense", "address": "d@example.com"}, delay=3000)
    page = await admin.go("jobs?q=args.user_id%3Adense")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(40)

    box = await rows.first.bounding_box()
    assert box is not None and box["height"] <= 36
    await page.evaluate("scrollTo(0, 600)")
    head = await page.locator("thead th").last.bounding_box()
    assert head is not None and -1 <= head["y"] <= 60
    await page.get_by_role("button", name="Id", exact=True).click()
    await expect(page.locator("th[aria-sort=ascending]")).to_have_text("Id")
    ids = await page.locator(".id-cell a").evaluate_all("all => all.map((one) => one.title)")
    assert ids == sorted(ids)
    assert len(await page.locator(".id-cell a").first.inner_text()) <= 8
    dashboard.ask("POST", "queues/email/operations", {"action": "remove", "state": "delayed", "q": "dense"})


async def test_columns_and_views_are_kept(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.fail(1, "kept for the view")
    page = await admin.go("jobs?q=error%3Akept")

    await page.get_by_text("Columns").click()
    await page.get_by_role("checkbox", name="Worker").check()
    await page.get_by_text("Columns").click()
    await expect(page.get_by_role("columnheader", name="Worker")).to_be_visible()
    await page.get_by_text("Saved views").click()
    await page.get_by_label("Name of the view").fill("My errors")
    await page.get_by_role("button", name="Save this query").click()
    await admin.reload()

    await expect(page.get_by_role("columnheader", name="Worker")).to_be_visible()
    await admin.go("jobs")
    await page.get_by_text("Saved views").click()
    await page.get_by_role("link", name="My errors").click()
    await expect(page.get_by_role("combobox", name="Query")).to_have_value("error:kept")
    await expect(page.locator("tbody tr")).to_have_count(1)
