"""The page of a job: a waterfall of its attempts, a log that follows, and the remedy beside the reason."""

from __future__ import annotations

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


async def test_a_job_is_shown_as_a_waterfall(dashboard: DashboardServer, admin: Person) -> None:
    [id] = dashboard.fail(1, "three attempts of this")
    page = await admin.go(f"job?queue=email&id={id}")

    rows = page.locator(".waterfall li")
    await expect(rows.filter(has_text="Attempt")).to_have_count(3)
    await expect(rows.filter(has_text="Backoff")).to_have_count(2)
    classes = await rows.evaluate_all("all => all.map((one) => one.className)")
    assert classes[-5:] == ["failed", "backoff", "failed", "backoff", "failed"]
    starts = await rows.locator("i").evaluate_all("all => all.map((one) => parseFloat(one.style.left))")
    assert starts == sorted(starts)


async def test_a_log_follows_and_can_be_searched(dashboard: DashboardServer, admin: Person) -> None:
    """Operator task n: a log while the job runs."""
    call = {"customer": "follow", "month": "m", "seconds": 4}
    id = dashboard.enqueue("reports", "monthly-statement", call)
    page = await admin.go(f"job?queue=reports&id={id}")

    await expect(page.locator(".log")).to_contain_text("rows rendered", timeout=20_000)
    await expect(page.get_by_label("Follow")).to_be_checked()
    await expect(page.locator(".log")).to_contain_text("uploaded to the archive", timeout=20_000)
    await page.get_by_label("Search the log").fill("ARCHIVE")
    await expect(page.locator(".log li")).to_have_count(1)
    await expect(page.locator(".waterfall .ran")).to_have_count(1)


async def test_every_attempt_keeps_its_traceback_and_two_can_be_compared(
    dashboard: DashboardServer, admin: Person
) -> None:
    """Operator task l: two clicks; the third attempt succeeds, and the errors of the first two stay."""
    id = dashboard.enqueue("email", "import", {"kind": "prices"})
    dashboard.until("email", id, "completed")
    page = await admin.go(f"job?queue=email&id={id}")

    await page.get_by_text("Traceback of attempt 1").click()
    trace = page.get_by_role("region", name="Traceback of attempt 1")
    await expect(trace).to_contain_text('raise KeyError("customer")')
    await page.get_by_role("button", name="Compare two attempts …").click()
    difference = page.get_by_role("region", name="Difference")
    await expect(difference.locator(".only", has_text='raise KeyError("customer")')).to_have_count(1)
    await expect(difference.locator(".only", has_text="no such currency")).not_to_have_count(0)
    await page.get_by_label("Left").select_option("1")
    await expect(page.get_by_role("dialog")).to_contain_text("Both are the same")


async def test_the_log_can_be_filtered_by_level_and_the_run_time_has_its_p95(
    dashboard: DashboardServer, admin: Person
) -> None:
    id = dashboard.enqueue("email", "import", {"kind": "stock"})
    dashboard.until("email", id, "completed")
    page = await admin.go(f"job?queue=email&id={id}")

    await expect(page.locator(".log li")).to_have_count(12)
    await page.get_by_label("Level").select_option("warning")
    await expect(page.locator(".log li")).to_have_count(6)
    await page.get_by_label("Level").select_option("error")
    await page.get_by_label("Search the log").fill("attempt 2")
    await expect(page.locator(".log li")).to_have_count(1)
    await expect(page.locator(".facts")).to_contain_text("p95", timeout=90_000)


async def test_a_running_job_shows_its_stack_on_demand(dashboard: DashboardServer, admin: Person) -> None:
    call = {"customer": "stack", "month": "m", "seconds": 30}
    id = dashboard.enqueue("reports", "monthly-statement", call)
    dashboard.until("reports", id, "active")
    page = await admin.go(f"job?queue=reports&id={id}")

    await page.get_by_role("button", name="Show the stack").click()
    stack = page.get_by_role("region", name="Stack")
    await expect(stack).to_contain_text("in monthly_statement")
    await expect(page.get_by_text("a coroutine in")).to_be_visible()
    dashboard.ask("POST", f"queues/reports/jobs/{id}/cancel")


async def test_the_action_is_beside_the_reason(dashboard: DashboardServer, admin: Person) -> None:
    """Operator task a: why is it not running, and the one click that changes it."""
    later = dashboard.enqueue("email", "welcome", {"user_id": "u", "address": "a@b.c"}, delay=3600)
    page = await admin.go(f"job?queue=email&id={later}")

    await page.locator(".reasons").get_by_role("button", name="Run now").click()
    dashboard.until("email", later, "completed")

    dashboard.ask("POST", "queues/slack/pause")
    call = {"channel": "#ops", "text": "hello"}
    [*_, held] = dashboard.enqueue_until_one_waits("slack", "alert", call, "paused")
    await admin.go(f"job?queue=slack&id={held}")
    await page.locator(".reasons").get_by_role("button", name="Resume slack").click()
    dashboard.until("slack", held, "completed")
