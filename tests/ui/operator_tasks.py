"""The 17 tasks of an operator, each as a person does it. The server is that of test_operator_tasks.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from dashboard_server import ADMIN, HERE, DashboardServer, person
from operator_desk import Operator
from playwright.async_api import Browser, expect

Task = Callable[[Operator, Browser], Awaitable[None]]
TASKS: dict[str, Task] = {}

FREQUENT, RARE = 24, 5
CUSTOMER, CROWD = "c-606", 60


def operator_task(name: str) -> Callable[[Task], Task]:
    """Register a task under its name in the guide."""

    def register(task: Task) -> Task:
        TASKS[name] = task
        return task

    return register


def fill(dashboard: DashboardServer) -> None:
    """An ordinary bad morning: two kinds of failures, flows, a durable job, customers, a halted key."""
    failing: list[tuple[str, str]] = []
    for n in range(FREQUENT + RARE):
        error = "421 the mail server is busy" if n < FREQUENT else "550 the mailbox does not exist"
        call = {"user_id": f"c-{n}", "address": f"a{n}@example.com", "fail": error}
        failing.append(("email", dashboard.enqueue("email", "verify", call)))
    for n in range(20):
        dashboard.enqueue("email", "welcome", {"user_id": f"c-{600 + n}", "address": f"b{n}@example.com"})
        dashboard.enqueue("payments", "charge", {"account": f"c-{600 + n}", "amount": n})
    exports = [dashboard.enqueue("reports", "export", {"customer": f"c-{n}"}) for n in range(3)]
    failing += [("reports", id) for id in exports]
    halted = dashboard.enqueue("payments", "charge", {"account": "c-1", "amount": 5, "refused": True})
    dashboard.enqueue("payments", "charge", {"account": "c-1", "amount": 6})
    failing.append(("payments", halted))
    for order in ("o-1", "o-2", "sold out"):
        dashboard.enqueue("maintenance", "place", {"order": order})
    dashboard.enqueue("orders", "fulfil", {"order": "o-3"})
    statement = {"customer": CUSTOMER, "month": "2026-10", "seconds": 0.1}
    dashboard.until("reports", dashboard.enqueue("reports", "monthly-statement", statement), "completed")
    for queue, id in failing:
        dashboard.until(queue, id, "failed")


def command(dashboard: DashboardServer, *arguments: str) -> None:
    """Somebody at a shell."""
    asked = [sys.executable, "-m", "qbull.cli.main", *arguments]
    subprocess.run(asked, env=dashboard.environment, cwd=HERE, check=True, capture_output=True)


@operator_task("Why is this job not running?")
async def why(operator: Operator, browser: Browser) -> None:
    command(operator.dashboard, "pause", "slack", "--reason", "Slack has an outage")
    call = {"channel": "#ops", "text": "held"}
    id = operator.dashboard.enqueue("slack", "alert", call)
    await operator.start()

    await operator.find(id)

    reasons = operator.page.locator(".reasons")
    await expect(reasons).to_contain_text("paused")
    await expect(reasons.get_by_role("button", name="Resume slack")).to_be_visible()
    operator.dashboard.ask("POST", "queues/slack/resume")


@operator_task("What fails most? Retry it with changed arguments")
async def retry_changed(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page
    most = page.locator(".failing li").first
    await expect(most).to_contain_text("421 the mail server is busy")
    await expect(most.locator(".row-count")).to_have_text(str(FREQUENT))

    await operator.click(most.get_by_role("link"))
    await operator.button("Retry all …")
    await operator.click(page.get_by_label("Changed arguments, as JSON"))
    await operator.type('{"fail": null}')
    await expect(page.locator(".patched")).to_have_count(5)
    await operator.submit("Retry")

    await expect(page.get_by_text(f"{FREQUENT} jobs run again")).to_be_visible()


@operator_task("Pause a queue, and resume it")
async def pause_and_resume(operator: Operator, browser: Browser) -> None:
    await operator.start()
    row = operator.page.get_by_role("row", name=re.compile("slack"))

    await operator.view("Queues")
    await operator.click(row.get_by_role("button", name="Pause"))
    await expect(row.get_by_text("paused")).to_be_visible()
    await operator.click(row.get_by_role("button", name="Resume"))

    await expect(row.get_by_role("button", name="Pause")).to_be_visible()


@operator_task("Find all jobs of a customer, in all queues")
async def find_customer(operator: Operator, browser: Browser) -> None:
    await operator.start()

    await operator.query(CUSTOMER)

    rows = operator.page.locator("tbody tr")
    await expect(rows).to_have_count(3)
    for task in ("welcome", "charge", "monthly-statement"):
        await expect(rows.filter(has_text=task)).to_have_count(1)


@operator_task("Which worker runs what, and for how long? Cancel a job")
async def running_jobs(operator: Operator, browser: Browser) -> None:
    call = {"customer": "c-2", "month": "m", "seconds": 60}
    id = operator.dashboard.enqueue("reports", "monthly-statement", call)
    operator.dashboard.until("reports", id, "active")
    await operator.start()
    row = operator.page.locator("tr", has=operator.page.locator(f"a[href*='{id}']"))

    await operator.view("Workers")
    await expect(row).to_contain_text(re.compile(r"\d+ m?s"))
    workers = operator.page.locator(".workers tbody tr")
    await expect(workers).to_have_count(2)
    for one in await workers.all():
        await expect(one).to_contain_text(re.compile(r"\d MB.*\d %"), timeout=30_000)
    await operator.click(row.get_by_role("button", name="Cancel reports/monthly-statement"))
    await operator.submit("Cancel the job")

    operator.dashboard.until("reports", id, "cancelled")


@operator_task("Change the concurrency of a queue while it runs")
async def live_limits(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.click(_queue_link(operator, "email"))
    await operator.button("Change")
    await operator.type("7")
    await operator.key("Enter")

    await expect(page.locator("dialog")).to_have_count(0)
    settings = operator.dashboard.ask("GET", "queues/email/settings")
    assert settings["settings"]["concurrency"] == 7


@operator_task("When does a schedule run next? Run it now")
async def schedule(operator: Operator, browser: Browser) -> None:
    await operator.start()
    daily = operator.page.locator(".schedule", has_text="daily-report")

    await operator.view("Schedules")
    await operator.click(daily.get_by_role("button", name="daily-report", exact=True))
    await expect(operator.page.locator(".next-runs tbody tr")).to_have_count(5)
    await operator.click(daily.get_by_role("button", name="Run now"))

    await expect(operator.page.locator(".last-runs tbody tr").first).to_contain_text("completed")


@operator_task("Who did what, in the dashboard and at a shell?")
async def audit(operator: Operator, browser: Browser) -> None:
    command(operator.dashboard, "schedules", "pause", "daily-report", "--reason", "a holiday")
    operator.dashboard.ask("POST", "schedules/daily-report/resume")
    await operator.start()

    await operator.view("Tokens and audit")

    row = operator.page.locator("tr", has_text="a holiday")
    await expect(row).to_contain_text("pause schedule")
    await expect(row).to_contain_text("daily-report")


@operator_task("Share what you see")
async def share(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.click(page.get_by_role("link", name=re.compile("email: .* failed")))
    await expect(page.locator("tbody tr")).not_to_have_count(0)

    colleague = await person(operator.dashboard, browser, ADMIN)
    await colleague.page.goto(page.url)
    shown = await page.locator("tbody tr").count()
    await expect(colleague.page.locator("tbody tr")).to_have_count(shown)
    mine = await page.get_by_role("combobox", name="Query").input_value()
    await expect(colleague.page.get_by_role("combobox", name="Query")).to_have_value(mine)
    assert colleague.wrong == []
    await colleague.context.close()


@operator_task("Throughput and percentiles of a queue in a day")
async def percentiles(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.click(_queue_link(operator, "email"))
    await operator.button("24 h")

    row = page.locator(".latency tbody tr", has_text="welcome")
    await expect(row).to_contain_text("ms", timeout=40_000)
    for name in ("Wait time", "Run time"):
        await expect(page.get_by_role("img", name=re.compile(f"{name}. p50: .*p95.*p99"))).to_be_visible()
    await expect(page).to_have_url(re.compile("span=24h"))


@operator_task("See a flow as a graph")
async def flow_graph(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.view("Flows")
    await operator.click(page.locator("tr", has_text="sold out").get_by_role("link").first)

    graph = page.locator(".flow-scroll")
    for task in ("reserve", "label", "ship", "refund"):
        await expect(graph.get_by_text(task).first).to_be_visible()


@operator_task("Compare the tracebacks of two attempts")
async def compare(operator: Operator, browser: Browser) -> None:
    id = operator.dashboard.enqueue("email", "import", {"kind": "prices"})
    operator.dashboard.until("email", id, "completed")
    await operator.start()

    await operator.find(id)
    await operator.button("Compare two attempts …")

    difference = operator.page.get_by_role("region", name="Difference")
    await expect(difference.locator(".only", has_text='raise KeyError("customer")')).to_have_count(1)


@operator_task("Cancel all jobs that match a query")
async def bulk_cancel(operator: Operator, browser: Browser) -> None:
    for _ in range(CROWD):
        call = {"user_id": "crowd", "address": "crowd@example.com"}
        operator.dashboard.enqueue("email", "newsletter", {**call, "issue": 1}, delay=3600)
    await operator.start()
    page = operator.page

    await operator.query("state:delayed crowd")
    await operator.click(page.get_by_label("Select all shown"))
    await operator.button(f"Select all {CROWD} matching")
    await operator.button("Cancel")
    await operator.submit(f"Cancel ({CROWD})")

    await expect(page.get_by_text(f"Cancel: {CROWD} jobs")).to_be_visible()
    assert _cancelled(operator.dashboard) == CROWD


@operator_task("Follow the log of a running job")
async def live_log(operator: Operator, browser: Browser) -> None:
    call = {"customer": "c-3", "month": "m", "seconds": 6}
    id = operator.dashboard.enqueue("reports", "monthly-statement", call)
    operator.dashboard.until("reports", id, "active")
    await operator.start()

    await operator.find(id)

    log = operator.page.locator(".log")
    await expect(log).to_contain_text("collecting the bookings")
    await expect(operator.page.get_by_label("Follow")).to_be_checked()
    await expect(log).to_contain_text("uploaded to the archive", timeout=20_000)


@operator_task("Make a token with a role and an end")
async def token(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.view("Tokens and audit")
    await operator.button("New token")
    await operator.type("ci")
    await operator.key("Tab", "o", "Tab", "3", "0", "Enter")

    await expect(page.locator(".token-shown code")).to_be_visible()
    [made] = [one for one in operator.dashboard.ask("GET", "tokens")["tokens"] if one["name"] == "ci"]
    assert made["role"] == "operator"
    assert made["expiresAt"] is not None


@operator_task("Change the number of partitions")
async def repartition(operator: Operator, browser: Browser) -> None:
    await operator.start()
    page = operator.page

    await operator.click(_queue_link(operator, "slack"))
    await operator.button("Change their number")
    await operator.type("3")
    await operator.key("Enter")

    await expect(page.locator(".strip .cell:not(.draining)")).to_have_count(3)
    assert operator.dashboard.ask("GET", "queues/slack")["partitions"] == 3


@operator_task("Change the language")
async def language(operator: Operator, browser: Browser) -> None:
    await operator.start()

    await operator.button("Español")

    await expect(operator.page.locator("h1")).to_have_text("Resumen")
    await expect(operator.page.locator("html")).to_have_attribute("lang", re.compile("^es"))


def _queue_link(operator: Operator, name: str) -> Any:
    return operator.page.locator("main table").get_by_role("link", name=name, exact=True)


def _cancelled(dashboard: DashboardServer) -> int:
    return len(dashboard.ask("GET", "jobs?q=state:cancelled crowd&limit=100")["jobs"])
