"""A durable job in a real browser: its steps, the form of the signal that it waits for, its stream, and a fork."""

from __future__ import annotations

import time
from typing import Any

import pytest
from dashboard_server import DashboardServer, Person
from playwright.async_api import expect
from test_views import AXE, UNREACHED

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]

APPROVAL = {"by": "ada", "amount": 90, "how": "cash"}


def waiting(dashboard: DashboardServer, order: str) -> str:
    """A durable job that waits for its approval."""
    id = dashboard.enqueue("orders", "fulfil", {"order": order})
    deadline = time.monotonic() + 20
    while dashboard.ask("GET", f"queues/orders/jobs/{id}")["waitsFor"] != ["approval"]:
        assert time.monotonic() < deadline
        time.sleep(0.03)
    return id


def ended(dashboard: DashboardServer, order: str) -> str:
    id = waiting(dashboard, order)
    dashboard.ask("POST", f"queues/orders/jobs/{id}/signal", {"name": "approval", "value": APPROVAL})
    dashboard.until("orders", id, "completed", "failed")
    return id


def steps(dashboard: DashboardServer, id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard.ask("GET", f"queues/orders/jobs/{id}/steps")["steps"]
    return found


async def test_a_signal_is_sent_with_a_form_made_from_its_type(
    dashboard: DashboardServer, admin: Person
) -> None:
    id = waiting(dashboard, "tea")
    page = await admin.go(f"job?queue=orders&id={id}")

    form = page.get_by_role("form", name="Send the signal approval")
    await form.get_by_label("by").fill("ada")
    await form.get_by_label("amount").fill("90")
    await form.get_by_label("how").select_option(label="transfer")
    await form.get_by_label("urgent").check()
    await form.get_by_role("button", name="Send the signal").press("Enter")

    await expect(page.locator(".stream li")).to_have_count(3)
    await expect(page.locator(".stream")).to_contain_text('"by":"ada"')
    await expect(page.locator(".steps > li")).to_have_count(3)
    dashboard.until("orders", id, "completed")
    assert steps(dashboard, id)[1]["result"] == {
        "by": "ada", "amount": 90, "how": "transfer", "urgent": True,
    }  # fmt: skip
    assert admin.wrong == []


async def test_steps_are_a_waterfall_with_results_and_errors(
    dashboard: DashboardServer, admin: Person
) -> None:
    id = ended(dashboard, "lost")
    page = await admin.go(f"job?queue=orders&id={id}")

    rows = page.locator(".steps > li")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(2)).to_have_class("failed")
    starts = await rows.locator("i").evaluate_all("all => all.map((one) => one.offsetLeft)")
    assert starts == sorted(starts)
    await rows.nth(0).locator("summary").press("Enter")
    await expect(rows.nth(0)).to_contain_text("payment of lost")
    await rows.nth(2).locator("summary").press("Enter")
    await expect(rows.nth(2)).to_contain_text("no lorry")


async def test_a_job_is_forked_from_a_step(dashboard: DashboardServer, admin: Person) -> None:
    old = ended(dashboard, "lost")
    page = await admin.go(f"job?queue=orders&id={old}")

    await page.get_by_role("button", name="Fork from step 4").click()
    dialog = page.get_by_role("dialog", name="Fork from step 4")
    await dialog.get_by_label("Arguments (JSON)").fill('{"order": "found"}')
    await dialog.get_by_label("Other results of earlier steps").fill('{"take_payment": "cash"}')
    await dialog.get_by_role("button", name="Fork", exact=True).click()

    await expect(page.get_by_text("Forked from")).to_be_visible()
    new = page.url.rpartition("id=")[2]
    assert new != old
    dashboard.until("orders", new, "completed")
    job = dashboard.ask("GET", f"queues/orders/jobs/{new}")
    assert (job["result"], job["forkedFrom"]) == ("found for cash", old)
    assert admin.wrong == []


async def test_viewers_see_the_steps_and_change_nothing(dashboard: DashboardServer, viewer: Person) -> None:
    id = waiting(dashboard, "cups")
    page = await viewer.go(f"job?queue=orders&id={id}")

    await expect(page.get_by_text("Operators can send it.")).to_be_visible()
    await expect(page.get_by_role("button", name="Send the signal")).to_have_count(0)
    done = ended(dashboard, "saucers")
    await viewer.go(f"job?queue=orders&id={done}")
    await expect(page.locator(".steps > li")).to_have_count(3)
    await expect(page.get_by_role("button", name="Fork")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_speaks_spanish(
    dashboard: DashboardServer, admin: Person, scheme: Any
) -> None:
    id = waiting(dashboard, "spoons")
    page = await admin.go(f"job?queue=orders&id={id}")
    await page.emulate_media(color_scheme=scheme)
    await expect(page.locator(".steps > li")).to_have_count(2)
    await page.locator(".steps summary").first.press("Enter")

    assert await page.evaluate(UNREACHED) == []
    await page.evaluate(AXE.read_text())
    found = await page.evaluate("async () => (await axe.run()).violations.map(one => one.id)")
    assert found == []
    await page.evaluate("localStorage.setItem('qbull.language', 'es')")
    await admin.reload()
    await expect(page.get_by_text("Espera la señal approval")).to_be_visible()
    await expect(page.get_by_role("button", name="Enviar la señal")).to_be_visible()
    await page.evaluate("localStorage.setItem('qbull.language', 'en')")
    await page.emulate_media(color_scheme="light")
