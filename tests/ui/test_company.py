"""What jobs have to do with each other and with people: flows, alerts, what waits for somebody; and the page in a small hand."""

from __future__ import annotations

import re

import pytest
from dashboard_server import ADMIN, VIEWS, DashboardServer, Person, person
from playwright.async_api import Browser, expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


async def test_a_key_that_waits_for_somebody_is_in_the_verdict(
    dashboard: DashboardServer, admin: Person
) -> None:
    call = {"account": "verdict-1", "amount": 5}
    head = dashboard.enqueue("payments", "charge", {**call, "refused": True})
    behind = dashboard.enqueue("payments", "charge", call)
    dashboard.until("payments", head, "failed")
    page = await admin.go("")

    verdict = page.locator(".verdict")
    await expect(verdict).to_contain_text(re.compile("halted by (a )?dead letter"))
    await admin.press("Español", inside="aside")
    await expect(verdict).to_contain_text(
        re.compile("Todas las colas funcionan; hay algo pendiente.*fallido")
    )
    await admin.press("English", inside="aside")
    await verdict.locator("li", has_text="payments").get_by_role("link", name="Show the keys").click()
    await page.get_by_role("link", name="verdict-1").first.click()
    await admin.press("Skip it")
    await admin.confirm("Skip it")

    dashboard.until("payments", behind, "completed")


async def test_a_flow_is_seen_step_by_step(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.ask("POST", "queues/orders/pause")
    placed = dashboard.enqueue("maintenance", "place", {"order": "A-17"})
    last = dashboard.until("maintenance", placed, "completed")["result"]

    page = await admin.go(f"job?queue=orders&id={last}")

    steps = page.locator(".flow-graph .step")
    await expect(steps).to_have_count(5)
    await expect(page.locator(".step.here")).to_contain_text("waits for others")
    await expect(page.locator(".reasons")).to_contain_text("It waits for label")
    await expect(page.locator(".step.fallback")).to_contain_text("refund")
    dashboard.ask("POST", "queues/orders/resume")
    await expect(page.locator("h1")).to_contain_text("completed")
    await expect(page.get_by_text("4 of 4 jobs completed")).to_be_visible()
    await steps.filter(has_text="reserve").click()
    await expect(page.locator("h1")).to_contain_text("reserve")
    await page.get_by_role("link", name="All flows").click()
    row = page.locator("tr", has_text="ship").first
    await expect(row.locator(".flow-line")).to_contain_text("label × 2")
    await expect(row).to_contain_text("completed")


async def test_a_flow_that_failed_and_a_wide_one_are_seen(dashboard: DashboardServer, admin: Person) -> None:
    placed = dashboard.enqueue("maintenance", "place", {"order": "sold out"})
    wide = dashboard.enqueue("maintenance", "place", {"order": "wide", "labels": 40})
    failed = dashboard.until("maintenance", placed, "completed")["result"]
    last = dashboard.until("maintenance", wide, "completed")["result"]
    dashboard.until("orders", failed, "failed")
    dashboard.until("orders", last, "completed")

    page = await admin.go(f"job?queue=orders&id={failed}")
    await expect(page.locator(".step.fallback")).to_contain_text("completed")
    await expect(page.locator(".step", has_text="reserve")).to_contain_text("failed")
    await expect(page.locator(".step .state-failed")).to_have_count(1)
    for task in ("label", "ship"):
        await expect(page.locator(".step", has_text=task).first).to_contain_text("not run")
    await expect(page.locator(".timeline")).to_contain_text("Not run: another job of its flow failed")
    await admin.go(f"job?queue=orders&id={last}")
    await expect(page.locator(".step", has_text="label × 40")).to_contain_text("40 completed")
    await admin.go("flows")
    rescued = page.locator("tr", has_text="rescued").first
    await expect(rescued).to_contain_text("1 failed")
    await expect(rescued.locator(".badge.state-failed")).to_have_count(1)


async def test_alerts_are_seen_tried_and_silenced(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.fail(1, "worth an alert")

    page = await admin.go("alerts")

    await expect(page.locator(".rows li", has_text="email").first).to_contain_text("dead letter")
    await expect(page.locator("td", has_text="failed permanently").first).to_be_visible()
    await admin.press("Send a test")
    await expect(page.get_by_role("dialog")).to_contain_text(re.compile("sent.*webhook"))
    await page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    await admin.press("Silence")
    await admin.undo("qbull.alerts is paused")
    await expect(page.get_by_text("Nothing is sent for now")).to_have_count(0)
    await admin.press("Silence")
    await expect(page.get_by_text("Nothing is sent for now")).to_be_visible()
    await admin.press("End the silence")
    await expect(page.get_by_text("Nothing is sent for now")).to_have_count(0)


async def test_work_that_somebody_else_began_is_shown_and_can_be_stopped(
    dashboard: DashboardServer, admin: Person
) -> None:
    dashboard.fail(3, "one in ten seconds")
    body = {"action": "redrive", "errorContains": "one in ten seconds", "rate": 0.1}
    dashboard.ask("POST", "queues/email/operations", body)

    page = await admin.go("")

    shown = page.locator(".operation", has_text="retry")
    await expect(shown).to_contain_text("looked at")
    await shown.get_by_role("button", name="Stop").click()
    await expect(shown).to_contain_text("it was stopped")


async def test_a_clean_says_how_many_are_meant(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("orders", "ship", {"order": "to be counted"})
    dashboard.until("orders", id, "completed")
    page = await admin.go("queue?name=orders")

    await admin.press("Clean")

    await expect(page.locator("dialog")).to_contain_text("0 jobs of")
    await expect(page.locator("dialog button[type=submit]")).to_be_disabled()
    await page.get_by_label("that ended at least this many minutes ago").fill("0")
    await expect(page.locator("dialog button[type=submit]")).to_have_text(re.compile(r"Remove them \(\d+\)"))


async def test_a_phone_shows_every_view_without_scrolling_sideways(
    dashboard: DashboardServer, browser: Browser
) -> None:
    dashboard.fail(1, "an error with a rather long text that has to go somewhere on a phone")
    somebody = await person(dashboard, browser, ADMIN, viewport={"width": 390, "height": 844}, has_touch=True)

    wide = {}
    for path in VIEWS:
        page = await somebody.go(path)
        await expect(page.locator(".loading")).to_have_count(0)
        wide[path] = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    await page.get_by_role("button", name="Menu").tap()
    await page.locator("aside").get_by_role("link", name="Flows").tap()

    await expect(page.locator("h1")).to_have_text("Flows")
    await expect(page.locator("aside")).not_to_be_in_viewport()
    assert {path: by for path, by in wide.items() if by > 0} == {}
    assert somebody.wrong == []
    await somebody.context.close()


async def test_whoever_has_only_a_keyboard_retries_a_job(
    dashboard: DashboardServer, browser: Browser
) -> None:
    [id] = dashboard.fail(1, "by keyboard alone")
    somebody = await person(dashboard, browser, ADMIN)
    page = await somebody.go("jobs?queue=email&state=failed&errorContains=by+keyboard")
    await expect(page.locator("tbody tr")).to_have_count(1)
    press = page.keyboard.press

    await press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await press("Enter")
    await press("j")
    await press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.get_by_role("button", name="Retry", exact=True).focus()
    await press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    for _ in range(4):
        if await page.evaluate("document.activeElement.type === 'submit'"):
            break
        await press("Tab")
    await press("Enter")

    await expect(page.get_by_text("Retry: 1 job")).to_be_visible()
    assert len(dashboard.ask("GET", f"queues/email/jobs/{id}/history")["attempts"]) >= 3
    await somebody.context.close()
