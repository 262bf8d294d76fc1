"""What can be done in the dashboard, done in a real browser, and looked for in the API afterwards."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest
from dashboard_server import VIEWS, DashboardServer, Person, person
from playwright.async_api import Browser, expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]


async def test_a_queue_is_paused_and_resumed(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queues?find=slack")
    card = page.get_by_role("row", name=re.compile("slack"))

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

    await expect(page).to_have_url(re.compile(r"q=queue%3Aemail\+state%3Afailed"))
    await expect(page.locator(f'a[title="{id}"]')).to_be_visible()


async def test_settings_are_changed_and_reset(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("queue?name=slack")
    settings = page.locator(".card", has=page.get_by_role("heading", name="Settings"))

    await settings.get_by_role("button", name="Change").click()
    await page.get_by_label("Concurrency per worker").fill("3")
    await page.get_by_label("Rate limit").fill("50")
    await admin.confirm("Change")
    await expect(settings).to_contain_text("50 in 1 s")
    changed = dashboard.ask("GET", "queues/slack/settings")
    await settings.get_by_role("button", name="Reset").first.click()
    await admin.confirm("Reset")

    assert changed["settings"]["concurrency"] == 3
    assert changed["settings"]["rate"] == {"count": 50, "per": 1.0}
    assert "concurrency" not in dashboard.ask("GET", "queues/slack/settings")["changed"]
    dashboard.ask("DELETE", "queues/slack/settings")


async def test_timeout_and_retention_are_changed_for_a_reason_that_the_audit_log_keeps(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("queue?name=slack")
    settings = page.locator(".card", has=page.get_by_role("heading", name="Settings"))

    await settings.get_by_role("button", name="Change").click()
    await page.get_by_label("Timeout of a run, in seconds").fill("90")
    await page.get_by_label("Keep failed ones for seconds").fill("3600")
    await page.get_by_label("Reason, for the audit log").fill("hängt seit 9 Uhr")
    await admin.confirm("Change")
    await expect(settings).to_contain_text("1 min 30 s")

    changed = dashboard.ask("GET", "queues/slack/settings")["settings"]
    assert (changed["timeout"], changed["keep"]["failed_for"]) == (90, 3600)
    entries = dashboard.ask("GET", "audit")["entries"]
    assert ("change settings", "hängt seit 9 Uhr") in [(one["action"], one["reason"]) for one in entries]
    dashboard.ask("DELETE", "queues/slack/settings")


async def test_a_job_that_waits_gets_another_time_and_other_arguments(
    dashboard: DashboardServer, admin: Person
) -> None:
    said = {"channel": "#ops", "text": "later"}
    id = dashboard.enqueue("slack", "alert", said, delay=3600)
    page = await admin.go(f"job?queue=slack&id={id}")

    await admin.press("Reschedule")
    await page.get_by_label("Time", exact=True).fill("2030-01-31T12:00:00Z")
    await admin.confirm("Reschedule")
    await page.get_by_role("button", name="Edit", exact=True).click()
    await page.get_by_label("Arguments (JSON)").fill('{"channel": "#ops", "text": "even later"}')
    await page.get_by_label("Reason, for the audit log").fill("a typo")
    await admin.confirm("Change")

    job = dashboard.ask("GET", f"queues/slack/jobs/{id}")
    assert (job["state"], job["dueAt"][:19]) == ("delayed", "2030-01-31T12:00:00")
    assert job["payload"]["text"] == "even later"
    entries = dashboard.ask("GET", "audit")["entries"]
    assert ("update job", "a typo") in [(one["action"], one["reason"]) for one in entries]
    dashboard.ask("DELETE", f"queues/slack/jobs/{id}")


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

    await page.get_by_role("combobox", name="Query").fill("queue:email state:completed args.user_id:needle")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f'tbody a[title="{found}"]')).to_be_visible()
    await admin.reload()

    await expect(page.locator("tbody tr")).to_have_count(1)
    assert "args.user_id%3Aneedle" in page.url
    await page.get_by_role("button", name="Clear the query").click()
    await expect(page.locator("tbody tr")).not_to_have_count(1)


async def test_chosen_jobs_are_retried(dashboard: DashboardServer, admin: Person) -> None:
    ids = dashboard.fail(3, "retry two of these three")
    page = await admin.go("jobs?queue=email&state=failed&errorContains=two+of+these")
    await expect(page.locator("tbody tr")).to_have_count(3)

    for id in ids[:2]:
        await page.get_by_label(f"Select {id}").check()
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

    await page.get_by_label("Select all shown").check()
    await page.get_by_role("button", name="Select all 60 matching").click()
    await admin.press("Remove")
    await admin.confirm("Remove (60)")

    await expect(page.locator(".operations")).to_contain_text("60 jobs")
    await expect(page.get_by_text("No job matches this query")).to_be_visible()
    dashboard.ask("POST", "queues/email/resume")


async def test_a_failed_job_is_edited_and_retried(dashboard: DashboardServer, admin: Person) -> None:
    [id] = dashboard.fail(1, "these arguments cannot work")
    page = await admin.go(f"job?queue=email&id={id}")
    await expect(page.get_by_label("Traceback", exact=True)).to_contain_text(
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


async def test_a_group_of_dead_letters_is_retried(dashboard: DashboardServer, admin: Person) -> None:
    ids = dashboard.fail(2, "the retried kind")
    page = await admin.go("dead")
    row = page.locator("tr", has_text="the retried kind")
    await expect(row).to_contain_text("2")

    await row.get_by_role("button", name="Retry").click()
    await admin.confirm("Retry")

    await expect(page.get_by_text("2 jobs run again")).to_be_visible()
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
    await expect(page.locator(f'a[title="{behind}"]')).to_be_visible()
    await admin.press("Skip it")
    await admin.confirm("Skip it")

    dashboard.until("payments", behind, "completed")
    await expect(page.get_by_text("No job waits in this lane")).to_be_visible()


async def test_schedules_are_run_paused_edited_added_and_removed(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("schedules")
    daily = page.locator(".schedule", has_text="daily-report")
    await expect(daily).to_contain_text("At 09:00, Monday through Friday")
    await daily.get_by_role("button", name="daily-report", exact=True).click()
    next_runs = page.locator(".next-runs tbody tr")
    await expect(next_runs).to_have_count(5)
    await expect(next_runs.first).to_contain_text(re.compile("09:00.*1[23]:00"))

    await daily.get_by_role("button", name="Run now").click()
    await expect(daily.get_by_text("completed")).to_be_visible()
    last = page.locator(".last-runs tbody tr").first
    await expect(last).to_contain_text(re.compile(r"completed.*\d+ ms"))
    await daily.get_by_role("button", name="Pause daily-report").click()
    await expect(daily.get_by_text("paused", exact=True).first).to_be_visible()
    await daily.get_by_role("button", name="Resume daily-report").click()
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
    nightly = page.locator(".schedule", has=page.get_by_role("button", name="nightly", exact=True))
    await expect(nightly).to_contain_text("02:30")
    await nightly.get_by_role("button", name="Edit nightly").click()
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

    row = page.locator("tr", has=page.locator(f"a[href*='{id}']"))
    await expect(row).to_contain_text(re.compile(r"\d+ m?s"))
    await expect(page.locator(".workers tbody tr").first).to_contain_text("live")
    await expect(page.locator(".matrix")).to_contain_text("0–7")
    await row.get_by_role("button", name="Cancel reports/monthly-statement").click()
    await admin.confirm("Cancel the job")
    dashboard.until("reports", id, "cancelled")


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
        r"^(Filter|Load again|Copy.*|1 h|6 h|24 h|7 d|30 d|Show more|Show the lane|Apply|Clear the query|Compare two attempts …|Search|Try again|.*– show|Select.*|Clear selection)$"
    )

    for path in (*VIEWS, f"job?queue=email&id={failed}", f"job?queue=email&id={later}"):
        page = await viewer.go(path)
        await expect(page.locator(".loading")).to_have_count(0)
        names = [
            await one.get_attribute("aria-label") or (await one.inner_text()).strip()
            for one in await page.locator(
                "main button:not(.sort):not([aria-pressed]):not([aria-expanded]):visible"
            ).all()
        ]
        assert [name for name in names if not allowed.match(name)] == [], path
    dashboard.ask("DELETE", f"queues/email/jobs/{later}")
