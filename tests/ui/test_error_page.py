"""The page of a kind of error: from the overview to the cause, one retry as a test, then all."""

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


async def test_the_page_of_an_error_leads_from_the_cause_to_the_retry(
    dashboard: DashboardServer, admin: Person
) -> None:
    """Operator task b: what fails most, and retry it. Dead letters, the error, retry, confirm."""
    ids = dashboard.fail(4, "the template has no block body")
    page = await admin.go("dead")

    await page.get_by_role("link", name="ConnectionError: the template has no block body").click()
    await expect(page.locator("h1")).to_have_text("ConnectionError: the template has no block body")
    figures = page.locator(".figures")
    await expect(figures).to_contain_text(re.compile(r"In the last hour\s*4"))
    await expect(page.get_by_role("img", name="4 failures in 24 hours")).to_be_visible()
    await expect(page.get_by_label("Traceback", exact=True)).to_contain_text("raise ConnectionError(fail)")
    await expect(page.locator(".shares").first).to_contain_text("verify")
    await expect(page.locator("tbody tr")).to_have_count(4)

    await page.get_by_role("button", name="Retry one as a test").click()
    await expect(page.get_by_text("One job runs again")).to_be_visible()
    await expect(figures).to_contain_text(re.compile(r"In the last hour\s*5"), timeout=20_000)

    await page.get_by_role("button", name="Retry all …").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Retry 4 jobs?")
    await admin.confirm("Retry")
    await expect(page.get_by_text("4 jobs run again")).to_be_visible()
    for id in ids:
        dashboard.until("email", id, "failed")
    await expect(figures).to_contain_text(re.compile(r"In the last hour\s*9"), timeout=20_000)


async def test_the_overview_counts_more_failures_than_a_page_would_hold(
    dashboard: DashboardServer, admin: Person
) -> None:
    dashboard.fail(3, "counted as they happen")
    page = await admin.go("")

    await page.get_by_role("link", name=re.compile("counted as they happen")).first.click()
    await expect(page.locator("h1")).to_have_text("ConnectionError: counted as they happen")
    await page.get_by_role("link", name="All its jobs").click()
    await expect(page.locator("tbody tr")).to_have_count(3)


async def test_an_operator_retries_all_jobs_of_a_kind_with_changed_arguments(
    dashboard: DashboardServer, admin: Person
) -> None:
    """The preview shows five jobs before and after; jobs that the patch does not fit stay."""
    ids = dashboard.fail(6, "the mail server is gone")
    page = await admin.go("dead")
    await page.get_by_role("link", name="ConnectionError: the mail server is gone").click()

    await page.get_by_role("button", name="Retry all …").click()
    changes = page.get_by_label("Changed arguments, as JSON")
    preview = page.get_by_role("region", name="Preview")
    await changes.fill("[1]")
    await expect(page.get_by_role("dialog")).to_contain_text("This is not a JSON object")
    await changes.fill('{"colour": "red"}')
    await expect(preview).to_contain_text("Stays a dead letter")
    await changes.fill('{"fail": null, "first_name": "Ann"}')
    await expect(preview.locator(".patched")).to_have_count(5)
    await expect(preview.locator("del").first).to_have_text('"the mail server is gone"')
    await expect(preview.locator("ins").first).to_have_text('"Ann"')
    await admin.confirm("Retry")

    await expect(page.get_by_text("6 jobs run again")).to_be_visible()
    for id in ids:
        dashboard.until("email", id, "completed")


async def test_an_error_that_somebody_knows_of_shows_the_note_on_its_page(
    dashboard: DashboardServer, admin: Person
) -> None:
    dashboard.fail(2, "the supplier has no stock")
    page = await admin.go("dead")
    await page.get_by_role("link", name="ConnectionError: the supplier has no stock").click()
    versions = page.locator(".shares", has_text="Version of the worker")
    await expect(versions).to_contain_text("known for 2 of 2 jobs: jobs do not store it")
    await expect(versions.locator("li")).to_have_count(1)

    await page.get_by_role("button", name="Acknowledge …").click()
    await page.get_by_label("Note").fill("the buyers know, ticket 4711")
    await admin.confirm("Acknowledge")

    known = page.get_by_role("region", name="Acknowledged")
    await expect(known).to_contain_text("the buyers know, ticket 4711")
    await known.get_by_role("button", name="Withdraw").click()
    await expect(known).to_have_count(0)
