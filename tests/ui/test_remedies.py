"""Why a job waits: the action beside each reason, and the reasons of its waits in the waterfall."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import Page, expect
from test_durable_view import waiting

from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    pytest.mark.skipif(not Built()._there, reason="the dashboard was not built: Node.js is needed for that"),
]

ALERT = {"channel": "#ops", "text": "hello"}


async def opened(admin: Person, queue: str, id: str) -> Page:
    return await admin.go(f"job?queue={queue}&id={id}")


@pytest.fixture(name="settled")
def settle_slack(dashboard: DashboardServer) -> Iterator[None]:
    yield
    for queue in ("slack", "reports"):
        dashboard.ask("DELETE", f"queues/{queue}/settings")


@pytest.mark.usefixtures("settled")
async def test_a_rate_is_changed_from_the_job_that_waits_for_it(
    dashboard: DashboardServer, admin: Person
) -> None:
    dashboard.ask("PUT", "queues/slack/settings", {"rate": {"count": 1, "per": 3600}})
    ids = dashboard.enqueue_until_one_waits("slack", "alert", ALERT, "rate")
    page = await opened(admin, "slack", ids[-1])
    await expect(page.locator(".waterfall li")).to_contain_text("Waits for the rate limit")

    await page.locator(".reasons").get_by_role("link", name="Change the limit").click()
    dialog = page.get_by_role("dialog", name="Settings of slack")
    await dialog.get_by_label("Rate limit").fill("")
    await admin.confirm("Change")

    await expect(page).not_to_have_url(re.compile("edit="))
    for id in ids:
        dashboard.until("slack", id, "completed")


@pytest.mark.usefixtures("settled")
async def test_a_concurrency_limit_leads_to_the_settings(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.ask("PUT", "queues/reports/settings", {"maxActive": 1})
    call = {"customer": "limited", "month": "m", "seconds": 60}
    ids = dashboard.enqueue_until_one_waits("reports", "monthly-statement", call, "limit")
    page = await opened(admin, "reports", ids[-1])

    await page.locator(".reasons").get_by_role("link", name="Change the limit").click()

    await expect(page.get_by_label("Concurrency over all workers")).to_have_value("1")
    for id in ids:
        dashboard.ask("POST", f"queues/reports/jobs/{id}/cancel")


async def test_a_shared_limit_leads_to_its_page(dashboard: DashboardServer, admin: Person) -> None:
    # Any of the three may be the one that waits: several processes take jobs without a key.
    ids = [dashboard.enqueue("slack", "digest", {"channel": "#remedy"}) for _ in range(3)]
    waits = dashboard.because("slack", ids, "shared-limit")
    page = await opened(admin, "slack", waits)

    await page.locator(".reasons").get_by_role("link", name="Open the limit slack-api").click()

    await expect(page.locator("section.card")).to_have_count(1)
    await expect(page.locator("section.card")).to_contain_text("slack-api")
    await page.get_by_role("link", name="All limits").click()
    await expect(page).not_to_have_url(re.compile("only="))
    dashboard.ask("POST", f"queues/slack/jobs/{waits}/cancel")


async def test_a_job_without_a_free_slot_leads_to_the_workers(
    dashboard: DashboardServer, admin: Person
) -> None:
    call = {"customer": "busy", "month": "m", "seconds": 60}
    ids = [dashboard.enqueue("reports", "monthly-statement", call) for _ in range(5)]
    for id in ids[:4]:
        dashboard.until("reports", id, "active")
    dashboard.because("reports", [ids[4]], "busy")
    page = await opened(admin, "reports", ids[4])
    await expect(page.locator(".waterfall li")).to_contain_text("All slots are in use")

    await page.locator(".reasons").get_by_role("link", name="Show the workers").click()

    await expect(page.locator("h1")).to_have_text("Workers")
    for id in reversed(ids):
        dashboard.ask("POST", f"queues/reports/jobs/{id}/cancel")


async def test_a_job_of_a_flow_leads_to_the_job_that_it_waits_for(
    dashboard: DashboardServer, admin: Person
) -> None:
    dashboard.ask("POST", "queues/orders/pause")
    made = dashboard.enqueue("maintenance", "place", {"order": "waits"})
    last = str(dashboard.until("maintenance", made, "completed")["result"])
    page = await opened(admin, "orders", last)

    # Its queue is paused as well, which is the first reason.
    await page.locator(".reasons").get_by_role("link", name="Open that job").click()
    await expect(page.locator("h1")).to_contain_text("label")
    dashboard.ask("POST", "queues/orders/resume")
    dashboard.until("orders", last, "completed")

    await opened(admin, "orders", last)
    await expect(page.locator(".waterfall li").first).to_contain_text("Waited for label")


async def test_a_job_that_waits_for_a_signal_leads_to_its_form(
    dashboard: DashboardServer, admin: Person
) -> None:
    id = waiting(dashboard, "remedy")
    page = await opened(admin, "orders", id)
    await expect(page.locator(".reasons")).to_contain_text('It waits for the signal "approval"')

    await page.locator(".reasons").get_by_role("button", name="Fill in the signal").click()

    await expect(page.get_by_label("by", exact=True)).to_be_focused()
    dashboard.ask("POST", f"queues/orders/jobs/{id}/cancel")


async def test_a_pause_and_a_delay_are_parts_of_the_waterfall(
    dashboard: DashboardServer, admin: Person
) -> None:
    later = dashboard.enqueue("slack", "alert", ALERT, delay=3600)
    dashboard.ask("POST", "queues/slack/pause")
    [*_, held] = dashboard.enqueue_until_one_waits("slack", "alert", ALERT, "paused")
    page = await opened(admin, "slack", held)
    await expect(page.locator(".waterfall li")).to_contain_text("The queue is paused")

    dashboard.ask("POST", "queues/slack/resume")
    dashboard.until("slack", held, "completed")
    await admin.reload()
    await expect(page.locator(".waterfall li").first).to_contain_text("Waited, as the queue was paused")
    await expect(page.locator(".waterfall .ran")).to_have_count(1)

    await opened(admin, "slack", later)
    await expect(page.locator(".waterfall li").last).to_contain_text("Waits for its time")
    dashboard.ask("POST", f"queues/slack/jobs/{later}/cancel")


async def test_order_behind_another_job_of_its_key_is_in_the_waterfall(
    dashboard: DashboardServer, admin: Person
) -> None:
    first = dashboard.enqueue("payments", "charge", {"account": "slow", "amount": 1, "seconds": 60})
    second = dashboard.enqueue("payments", "charge", {"account": "slow", "amount": 2})
    dashboard.until("payments", first, "active")

    page = await opened(admin, "payments", second)

    await expect(page.locator(".waterfall li")).to_contain_text("Behind others of its key")
    await page.locator(".reasons").get_by_role("link", name="Open the key").click()
    await expect(page.locator("h1")).to_contain_text("Keys")
    for id in (second, first):
        dashboard.ask("POST", f"queues/payments/jobs/{id}/cancel")


async def test_the_log_can_be_filtered_by_attempt(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("email", "import", {"kind": "attempts"})
    dashboard.until("email", id, "completed")
    page = await opened(admin, "email", id)
    await expect(page.locator(".log li")).to_have_count(12)

    await page.get_by_label("Which attempt").select_option("2")

    await expect(page.locator(".log li")).to_have_count(4)
    await expect(page.locator(".log li").first).to_contain_text("debug of attempt 2")
