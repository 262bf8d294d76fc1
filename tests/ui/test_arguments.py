"""Arguments are compared with the schema of the task while one writes them, and it offers fields and values."""

from __future__ import annotations

import re

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect

from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    pytest.mark.skipif(not Built()._there, reason="the dashboard was not built: Node.js is needed for that"),
]

SELECTED = "() => { const one = document.activeElement; return one.value.slice(one.selectionStart, one.selectionEnd); }"


async def test_misfits_are_shown_at_their_place_and_values_are_offered(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("queue?name=reports")
    await admin.press("New job")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Task", exact=True).select_option("monthly-statement")
    text = dialog.get_by_label("Arguments (JSON)")

    await text.fill('{\n  "customer": 5,\n  "paper": "a3"\n}')
    misfits = dialog.locator(".misfits li")
    await expect(misfits).to_have_text(
        [
            re.compile("line 1: month is missing"),
            re.compile("line 2: customer must be string"),
            re.compile('line 3: paper must be one of "a4", "letter"'),
        ]
    )
    await misfits.nth(2).get_by_role("button").click()
    assert await page.evaluate(SELECTED) == '"paper"'

    await dialog.get_by_label("paper").select_option('"letter"')
    await dialog.get_by_role("button", name="Add month").click()
    await dialog.get_by_role("button", name="Add rows").click()
    await expect(text).to_have_value(re.compile(r'"rows": 0'))
    await text.fill((await text.input_value()).replace("5", '"acme"'))
    await expect(misfits).to_have_count(0)
    await admin.confirm("Enqueue")
    await page.get_by_role("link", name="Open it").click()
    await expect(page.locator("h1")).to_contain_text("monthly-statement")
    await expect(page.locator(".card", has_text="Arguments").first).to_contain_text("letter")


async def test_text_that_is_no_json_says_why(dashboard: DashboardServer, admin: Person) -> None:
    [id] = dashboard.fail(1, "arguments to be edited")
    page = await admin.go(f"job?queue=email&id={id}")
    await admin.press("Edit and retry")
    text = page.get_by_role("dialog").get_by_label("Arguments (JSON)")

    await text.fill('{"user_id": }')
    await expect(page.locator(".misfits")).to_contain_text("The arguments are no JSON")
    await text.fill('{"user_id": "u", "adress": "a@b.c"}')
    await expect(page.locator(".misfits")).to_contain_text("address is missing")
    await text.fill('{"user_id": "u", "address": "a@b.c"}')
    await expect(page.locator(".misfits li")).to_have_count(0)
    await admin.confirm("Retry")
    dashboard.until("email", id, "completed")
