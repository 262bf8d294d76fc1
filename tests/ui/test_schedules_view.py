"""Schedules: rules in words, a day on one axis, the last runs with outcome and duration."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("ui")]

RULES = {
    "0 9 * * 1-5": ("At 09:00, Monday through Friday", "A las 09:00, de lunes a viernes"),
    "*/15 * * * *": ("Every 15 minutes", "Cada 15 minutos"),
    "0 0 LW * *": (
        "At 00:00, on the last weekday of the month",
        "A las 00:00, en el último día de la semana del mes",
    ),
    "30 4 * * 5#2": (
        "At 04:30, on the second Friday of the month",
        "A las 04:30, en el segundo viernes del mes",
    ),
    "*/10 * * * * *": ("Every 10 seconds", "Cada 10 segundos"),
    "@monthly": ("At 00:00, on day 1 of the month", "A las 00:00, el día 1 del mes"),
}
"""What qbull takes: five fields, six with seconds, names, and the last or a certain weekday of a month."""


@pytest.fixture(name="ruled")
def make_ruled(dashboard: DashboardServer) -> Iterator[None]:
    for number, cron in enumerate(RULES):
        body = {"task": "slack/alert", "cron": cron, "args": {"channel": "#a", "text": "b"}}
        dashboard.ask("PUT", f"schedules/ruled-{number}", body)
        dashboard.ask("POST", f"schedules/ruled-{number}/pause")
    yield
    for number in range(len(RULES)):
        dashboard.ask("DELETE", f"schedules/ruled-{number}")


@pytest.mark.usefixtures("ruled")
async def test_every_kind_of_rule_is_said_in_words_in_both_languages(admin: Person) -> None:
    page = await admin.go("schedules?find=ruled-")

    for number, (english, _) in enumerate(RULES.values()):
        row = page.locator(".schedule", has_text=f"ruled-{number}")
        await expect(row.locator(".rule-words span").first).to_have_text(english)
    await page.get_by_role("button", name="Español").click()
    for number, (_, spanish) in enumerate(RULES.values()):
        row = page.locator(".schedule", has_text=f"ruled-{number}")
        await expect(row.locator(".rule-words span").first).to_have_text(spanish)
    assert admin.wrong == []


async def test_the_runs_of_a_day_are_on_one_axis_with_their_outcomes(
    dashboard: DashboardServer, admin: Person
) -> None:
    body = {"task": "reports/export", "cron": "0 3 * * *", "args": {"customer": "acme"}}
    dashboard.ask("PUT", "schedules/failing-export", body)
    for _ in range(3):
        ran = dashboard.ask("POST", "schedules/failing-export/run")
        dashboard.until("reports", ran["jobId"], "failed")

    page = await admin.go("schedules")

    row = page.locator(".day-row", has_text="failing-export")
    await expect(row.locator(".run.failed")).to_have_count(3)
    await expect(
        page.locator(".day-row", has_text="sync-exchange-rates").locator(".run.planned")
    ).not_to_have_count(0)
    await page.get_by_role("button", name="failing-export", exact=True).click()
    runs = page.locator(".last-runs tbody tr")
    await expect(runs).to_have_count(3)
    await expect(runs.first).to_contain_text(re.compile(r"failed.*ms"))
    await runs.first.get_by_role("link").click()
    await expect(page.locator("h1")).to_contain_text("export")
    dashboard.ask("DELETE", "schedules/failing-export")


async def test_the_part_of_a_day_whose_runs_are_not_kept_is_marked(
    dashboard: DashboardServer, admin: Person
) -> None:
    call = {"channel": "#a", "text": "b"}
    for name, runs in (("often", 31), ("seldom", 2)):
        dashboard.ask("PUT", f"schedules/{name}", {"task": "slack/alert", "cron": "0 3 * * *", "args": call})
        for _ in range(runs):
            ran = dashboard.ask("POST", f"schedules/{name}/run")
            dashboard.until("slack", ran["jobId"], "completed")

    page = await admin.go("schedules")

    often = page.locator(".day-row", has_text="often")
    await expect(often.locator(".unkept")).to_have_attribute("title", re.compile("Only the last 30 runs"))
    await expect(often.get_by_role("img", name=re.compile("no longer kept"))).to_be_visible()
    await expect(page.locator(".day-row", has_text="seldom").locator(".unkept")).to_have_count(0)
    await expect(page.locator(".legend-row")).to_contain_text("not kept")
    await page.get_by_role("button", name="Español").click()
    await expect(page.locator(".legend-row")).to_contain_text("no conservado")
    for name in ("often", "seldom"):
        dashboard.ask("DELETE", f"schedules/{name}")
