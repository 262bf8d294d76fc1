"""What can be done in the dashboard, done in a real browser, and looked for in the API afterwards."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest
from dashboard_server import VIEWS, DashboardServer, Person, person
from playwright.async_api import Browser, expect

from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    pytest.mark.skipif(not Built()._there, reason="the dashboard was not built: Node.js is needed for that"),
]


async def test_a_queue_is_paused_and_resumed(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queues?find=slack")
    card = page.locator(".queue-card", has_text="slack")

    await card.get_by_role("button", name="Pause").click()
    await admin.undo("slack is paused")
    dashboard.until(
        "slack", dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": "on"}), "completed"
    )
    await expect(card.get_by_text("paused")).to_have_count(0)
    await card.get_by_role("button", name="Pause").click()
    await expect(card.get_by_text("paused")).to_be_visible()
    id = dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": "held"})
    await expect(card.get_by_role("link", name="slack: 1 waiting")).to_be_visible()
    await card.get_by_role("button", name="Resume").click()

    dashboard.until("slack", id, "completed")
    await expect(card.get_by_role("button", name="Pause")).to_be_visible()


async def test_a_count_leads_to_what_was_counted(dashboard: DashboardServer, admin: Person) -> None:
    [id] = dashboard.fail(1, "a failure to be found")
    page = await admin.go("queues?find=email")

    await page.get_by_role("link", name=re.compile("email: .* failed")).click()

    await expect(page).to_have_url(re.compile("queue=email&state=failed"))
    await expect(page.get_by_role("link", name=re.compile(id))).to_be_visible()


async def test_settings_are_changed_and_reset(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queue?name=slack")
    settings = page.locator(".card", has=page.get_by_role("heading", name="Settings"))

    await settings.get_by_role("button", name="Change").click()
    await page.get_by_label("Jobs at a time in a worker").fill("3")
    await page.get_by_label("Starts at most").fill("50")
    await admin.confirm("Change")
    await expect(settings).to_contain_text("50 in 1 s")
    changed = dashboard.ask("GET", "queues/slack/settings")
    await settings.get_by_role("button", name="Reset").first.click()
    await admin.confirm("Reset")

    assert changed["settings"]["concurrency"] == 3
    assert changed["settings"]["rate"] == {"count": 50, "per": 1.0}
    assert "concurrency" not in dashboard.ask("GET", "queues/slack/settings")["changed"]
    dashboard.ask("DELETE", "queues/slack/settings")


async def test_the_number_of_partitions_is_changed(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queue?name=slack")

    await admin.press("Change their number")
    await page.locator("dialog").get_by_label("Partitions").fill("3")
    await admin.confirm("Change")

    await expect(page.locator(".strip .cell:not(.draining)")).to_have_count(3)
    assert dashboard.ask("GET", "queues/slack")["partitions"] == 3


async def test_a_job_is_enqueued_from_the_page(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queue?name=email")

    await admin.press("New job")
    await page.get_by_label("Task").select_option("welcome")
    await page.get_by_label("Arguments (JSON)").fill('{"user_id": 7}')
    await page.locator("dialog button[type=submit]").click()
    await expect(page.get_by_role("alert")).to_contain_text(re.compile("user_id|address"))
    await page.get_by_label("Arguments (JSON)").fill('{"user_id": "u-7", "address": "new@example.com"}')
    await admin.confirm("Enqueue")

    await page.get_by_role("link", name="Open it").click()
    await expect(page.get_by_label("Arguments")).to_contain_text("new@example.com")


async def test_the_address_holds_the_filter(dashboard: DashboardServer, admin: Person) -> None:
    found = dashboard.enqueue("email", "welcome", {"user_id": "needle", "address": "n@example.com"})
    dashboard.enqueue("email", "welcome", {"user_id": "hay", "address": "h@example.com"})
    dashboard.until("email", found, "completed")
    page = await admin.go("jobs?queue=email&state=completed")

    await admin.press("Filter")
    await page.get_by_label("Argument", exact=True).fill("user_id=needle")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.get_by_role("link", name=re.compile(found))).to_be_visible()
    await page.reload()

    await expect(page.locator("tbody tr")).to_have_count(1)
    assert "payload=user_id%3Dneedle" in page.url
    await page.get_by_role("button", name="Without Argument").click()
    await expect(page.locator("tbody tr")).not_to_have_count(1)


async def test_chosen_jobs_are_retried(dashboard: DashboardServer, admin: Person) -> None:
    ids = dashboard.fail(3, "retry two of these three")
    page = await admin.go("jobs?queue=email&state=failed&errorContains=two+of+these")
    await expect(page.locator("tbody tr")).to_have_count(3)

    for id in ids[:2]:
        await page.get_by_label(f"Choose {id}").check()
    await admin.press("Retry")
    await admin.confirm("Retry (2)")

    await expect(page.get_by_text("Retry: 2 jobs")).to_be_visible()
    for id in ids[:2]:
        job = dashboard.until("email", id, "failed")
        history = dashboard.ask("GET", f"queues/email/jobs/{id}/history")["attempts"]
        assert len(history) > job["maxAttempts"]
    assert len(dashboard.ask("GET", f"queues/email/jobs/{ids[2]}/history")["attempts"]) == 3


async def test_all_that_match_are_removed_by_the_server(dashboard: DashboardServer, admin: Person) -> None:
    dashboard.ask("POST", "queues/email/pause")
    call = {"user_id": "crowd", "address": "c@example.com"}
    for _ in range(60):
        dashboard.enqueue("email", "welcome", call, delay=3000)
    page = await admin.go("jobs?queue=email&state=delayed&payload=user_id%3Dcrowd")

    await page.get_by_label("Choose all that are shown").check()
    await page.get_by_role("button", name="Choose all 60 that match").click()
    await admin.press("Remove")
    await admin.confirm("Remove (60)")

    await expect(page.locator(".operations")).to_contain_text("60 jobs")
    await expect(page.get_by_text("No job fits this filter")).to_be_visible()
    dashboard.ask("POST", "queues/email/resume")


async def test_a_failed_job_is_edited_and_retried(dashboard: DashboardServer, admin: Person) -> None:
    [id] = dashboard.fail(1, "these arguments cannot work")
    page = await admin.go(f"job?queue=email&id={id}")
    await expect(page.get_by_label("Traceback")).to_contain_text(
        "ConnectionError: these arguments cannot work"
    )

    await admin.press("Edit and retry")
    await page.get_by_label("Arguments (JSON)").fill('{"user_id": "u-1", "address": "right@example.com"}')
    await admin.confirm("Retry")

    await expect(page.locator("h1")).to_contain_text("completed")
    await expect(page.get_by_label("Result")).to_contain_text("right@example.com")
    await expect(page.locator(".timeline")).to_contain_text("Attempt 3 failed")


async def test_a_delayed_job_is_run_now_and_another_cancelled_and_removed(
    dashboard: DashboardServer, admin: Person
) -> None:
    now = dashboard.enqueue("email", "welcome", {"user_id": "u", "address": "a@b.c"}, delay=3600)
    never = dashboard.enqueue(
        "email", "welcome", {"user_id": "u", "address": "a@b.c"}, delay=3600, id="a.b/c d"
    )

    page = await admin.go(f"job?queue=email&id={now}")
    await admin.press("Run now")
    await expect(page.locator("h1")).to_contain_text("completed")
    await admin.go(f"job?queue=email&id={quote(never, safe='')}")
    await admin.press("Cancel")
    await admin.confirm("Cancel the job")
    await expect(page.locator("h1")).to_contain_text("cancelled")
    await admin.press("Remove")
    await expect(page.locator("h1")).to_have_text("Jobs")
    await admin.undo("The job was removed")
    await expect(page.locator("h1")).to_contain_text("cancelled")
    await admin.press("Remove")
    await expect(page.locator("h1")).to_have_text("Jobs")
    await page.goto(f"{dashboard.url}/ui/workers")  # leaving the page gives up the undo

    deadline = time.monotonic() + 20
    while dashboard.api.get(f"queues/email/jobs/{quote(never, safe='')}").status_code != 404:
        assert time.monotonic() < deadline


async def test_a_running_job_is_cancelled(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("reports", "monthly-statement", {"customer": "c", "month": "m", "seconds": 60})
    dashboard.until("reports", id, "active")
    page = await admin.go(f"job?queue=reports&id={id}")

    await admin.press("Cancel")
    await admin.confirm("Cancel the job")

    await expect(page.locator("h1")).to_contain_text("cancelled")


async def test_a_group_of_dead_letters_is_redriven(dashboard: DashboardServer, admin: Person) -> None:
    ids = dashboard.fail(2, "the redriven kind")
    page = await admin.go("dead")
    row = page.locator("tr", has_text="the redriven kind")
    await expect(row).to_contain_text("2")

    await row.get_by_role("button", name="Redrive").click()
    await admin.confirm("Redrive")

    await expect(page.get_by_text("2 jobs were redriven")).to_be_visible()
    for id in ids:
        dashboard.until("email", id, "failed")
        assert len(dashboard.ask("GET", f"queues/email/jobs/{id}/history")["attempts"]) == 6
    await row.get_by_role("button", name="Remove this group").click()
    await admin.confirm("Remove")
    await expect(row).to_have_count(0)


async def test_a_halted_lane_goes_on_after_its_head_was_skipped(
    dashboard: DashboardServer, admin: Person
) -> None:
    head = dashboard.enqueue("payments", "charge", {"account": "halt-1", "amount": 5, "refused": True})
    behind = dashboard.enqueue("payments", "charge", {"account": "halt-1", "amount": 6})
    dashboard.until("payments", head, "failed")
    page = await admin.go("keys")

    await page.get_by_role("link", name="halt-1").first.click()
    await expect(page.get_by_text("This lane is halted")).to_be_visible()
    await expect(page.get_by_role("link", name=re.compile(behind))).to_be_visible()
    await admin.press("Skip it")
    await admin.confirm("Skip it")

    dashboard.until("payments", behind, "completed")
    await expect(page.get_by_text("No job waits in this lane")).to_be_visible()


async def test_schedules_are_run_paused_edited_added_and_removed(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("schedules")
    daily = page.locator(".schedule", has_text="daily-report")
    await expect(daily.locator(".next-runs tbody tr")).to_have_count(5)
    await expect(daily.locator(".next-runs tbody tr").first).to_contain_text(re.compile("09:00.*1[23]:00"))

    await daily.get_by_role("button", name="Run now").click()
    await expect(daily.get_by_text("completed")).to_be_visible()
    await daily.get_by_role("button", name="Pause").click()
    await expect(daily.get_by_text("paused", exact=True)).to_be_visible()
    await daily.get_by_role("button", name="Resume").click()
    await admin.press("New schedule")
    await page.get_by_label("Name").fill("nightly")
    await page.locator("dialog").get_by_label("Queue").select_option("slack")
    await page.locator("dialog").get_by_label("Task").select_option("alert")
    await page.get_by_label("Cron expression").fill("not a rule")
    await page.get_by_label("Time zone").fill("Asia/Tokyo")
    await page.get_by_label("Arguments (JSON)").fill('{"channel": "#ops", "text": "night"}')
    await page.locator("dialog button[type=submit]").click()
    await expect(page.get_by_role("alert")).to_contain_text("not a rule")
    await page.get_by_label("Cron expression").fill("30 2 * * *")
    await admin.confirm("Add")
    nightly = page.locator(".schedule", has=page.get_by_role("heading", name="nightly"))
    await expect(nightly).to_contain_text("02:30")
    await nightly.get_by_role("button", name="Edit").click()
    await page.get_by_label("Cron expression").fill("45 3 * * *")
    await admin.confirm("Save")
    await expect(nightly).to_contain_text("03:45")
    assert dashboard.ask("GET", "schedules/nightly")["schedule"]["tz"] == "Asia/Tokyo"
    await nightly.get_by_role("button", name="Remove nightly").click()
    await admin.confirm("Remove")
    await expect(nightly).to_have_count(0)


async def test_workers_show_what_they_run(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("reports", "monthly-statement", {"customer": "c", "month": "m", "seconds": 30})
    dashboard.until("reports", id, "active")

    page = await admin.go("workers")

    await expect(
        page.locator(".worker").get_by_role("link", name="reports/monthly-statement")
    ).to_be_visible()
    await expect(page.locator(".worker-queues")).to_contain_text("0–7")
    dashboard.ask("POST", f"queues/reports/jobs/{id}/cancel")


async def test_finished_jobs_are_cleaned(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": "soon gone"})
    dashboard.until("slack", id, "completed")
    page = await admin.go("queue?name=slack")

    await admin.press("Clean")
    await page.get_by_label("that ended at least this many minutes ago").fill("0")
    await admin.confirm("Remove them")

    await expect(page.get_by_text(re.compile("jobs? w(as|ere) removed"))).to_be_visible()
    assert dashboard.ask("GET", "queues/slack/stats")["completed"] == 0
    page = await admin.go("system")
    await expect(page.locator("tr", has_text="clean")).to_be_visible()


async def test_a_token_is_made_used_and_revoked(
    dashboard: DashboardServer, browser: Browser, admin: Person
) -> None:
    page = await admin.go("access")
    await admin.press("New token")
    await page.get_by_label("Name").fill("a viewer of the tests")
    await page.locator("dialog button[type=submit]").click()
    text = await page.locator(".token-shown code").inner_text()
    await page.get_by_role("button", name="Got it").click()

    somebody = await person(dashboard, browser, None)
    theirs = await somebody.go("queue?name=email")
    await theirs.get_by_role("button", name="Token").click()
    await theirs.get_by_label("Token", exact=True).fill(text)
    await theirs.keyboard.press("Enter")
    await expect(theirs.get_by_role("heading", name="email")).to_be_visible()
    row = page.locator("tr", has_text="a viewer of the tests").first
    await row.get_by_role("button", name="Revoke").click()
    await admin.confirm("Revoke")

    deadline = time.monotonic() + 10
    while (await theirs.request.get(f"{dashboard.url}/api/me")).ok:
        assert time.monotonic() < deadline
    await theirs.reload()
    await expect(theirs.get_by_role("heading", name="Log in to qbull")).to_be_visible()
    await expect(page.locator("tr", has_text="revoke token").first).to_be_visible()
    await somebody.context.close()


async def test_a_viewer_sees_no_button_that_would_be_refused(
    dashboard: DashboardServer, viewer: Person
) -> None:
    [failed] = dashboard.fail(1, "only to be looked at")
    later = dashboard.enqueue("email", "welcome", {"user_id": "u", "address": "a@b.c"}, delay=3600)
    allowed = re.compile(
        r"^(Filter|Load again|Copy.*|1 h|6 h|24 h|Show more|Show the lane|Apply|Try again|.*– show|Choose.*)$"
    )

    for path in (*VIEWS, f"job?queue=email&id={failed}", f"job?queue=email&id={later}"):
        page = await viewer.go(path)
        await expect(page.locator(".loading")).to_have_count(0)
        names = [
            await one.get_attribute("aria-label") or (await one.inner_text()).strip()
            for one in await page.locator("main button").all()
        ]
        assert [name for name in names if not allowed.match(name)] == [], path
    dashboard.ask("DELETE", f"queues/email/jobs/{later}")
