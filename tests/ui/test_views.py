"""The views in a real browser: each shows what is there, live, in both languages, and axe finds nothing wrong with any of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import ADMIN, HERE, PASSWORD, VIEWS, DashboardServer, Person, address, person, running
from playwright.async_api import Browser, expect

from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]

UNREACHED = """() => [...document.querySelectorAll('body *')]
    .filter(one => getComputedStyle(one).cursor === 'pointer' && !one.closest('a[href], button, input, select, textarea, summary, label, [role=option]'))
    .map(one => 'no key leads to ' + one.outerHTML.slice(0, 120))"""
GROUND = {"light": "rgb(246, 247, 249)", "dark": "rgb(13, 16, 21)"}
"""The colour behind every view: that of the theme that is meant."""
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"


async def test_a_wrong_password_is_refused_and_the_right_one_opens_what_was_asked_for(
    dashboard: DashboardServer, browser: Browser
) -> None:
    somebody = await person(dashboard, browser, None)
    page = await somebody.go("workers")

    await page.get_by_label("Password", exact=True).fill("not this one")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the password is wrong")
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    await somebody.press("Log out", inside="aside")
    await expect(page.get_by_role("heading", name="Log in to qbull")).to_be_visible()
    assert somebody.wrong == []
    await somebody.context.close()


async def test_the_overview_tells_what_happens_as_it_happens(
    dashboard: DashboardServer, admin: Person
) -> None:
    page = await admin.go("")
    await expect(page.locator(".side .live")).to_have_text("Live")

    row = page.locator("tr", has=page.get_by_role("link", name="email", exact=True))
    before = dashboard.ask("GET", "queues/email/stats")["completed"]

    dashboard.enqueue("email", "welcome", {"user_id": "u1", "address": "live@example.com"})

    done = row.get_by_role("link", name=f"email: {before + 1} completed")
    await expect(done).to_be_visible()
    await expect(page.locator(".verdict")).to_contain_text("All queues work")
    await expect(page.get_by_role("img", name=re.compile("Jobs per minute"))).to_be_visible()
    await page.get_by_role("button", name="24 h").click()
    await expect(page.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")
    await done.click()
    await expect(page.locator("h1")).to_be_focused()


async def test_a_running_job_shows_its_progress_and_its_log_as_they_come(
    dashboard: DashboardServer, admin: Person
) -> None:
    id = dashboard.enqueue(
        "reports", "monthly-statement", {"customer": "acme", "month": "2026-10", "seconds": 10.0}
    )
    page = await admin.go(f"job?queue=reports&id={id}")

    await expect(page.locator(".progress-line")).to_be_visible()
    await expect(page.get_by_text("What it is doing")).to_be_visible()
    await expect(page.locator("h1")).to_contain_text("completed", timeout=30_000)

    await expect(page.locator(".log")).to_contain_text("uploaded to the archive")
    await expect(page.get_by_label("Result")).to_contain_text("acme-2026-10.pdf")
    await expect(page.locator(".timeline")).to_contain_text("Attempt 1 completed")


async def test_why_a_job_is_not_running_is_said(dashboard: DashboardServer, admin: Person) -> None:
    id = dashboard.enqueue("email", "welcome", {"user_id": "u1", "address": "a@b.c"}, delay=3600)

    page = await admin.go(f"job?queue=email&id={id}")

    await expect(page.get_by_role("heading", name="Why is it not running?")).to_be_visible()
    await expect(page.locator(".reasons")).to_contain_text("It is delayed until")
    await admin.press("Español", inside="aside")
    await expect(page.locator(".reasons")).to_contain_text("Está demorado hasta")
    await page.goto(f"{dashboard.url}/ui/job?queue=email&id=nowhere")
    await expect(page.get_by_role("alert")).to_contain_text("cola «email»: no hay un trabajo nowhere")
    dashboard.ask("DELETE", f"queues/email/jobs/{id}")


async def test_the_keyboard_goes_everywhere(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("")
    await page.locator("#main").focus()

    for keys, heading in (("gq", "Queues"), ("gs", "Schedules"), ("gw", "Workers"), ("gy", "System")):
        await page.keyboard.press(keys[0])
        await page.keyboard.press(keys[1])
        await expect(page.locator("h1")).to_have_text(heading)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Help and keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await _find(page, "payments queue")
    await expect(page.locator("h1")).to_contain_text("payments")

    id = dashboard.enqueue("slack", "alert", {"channel": "#ops", "text": "hello"})
    dashboard.until("slack", id, "completed")
    await _find(page, id)
    await expect(page.locator("h1")).to_contain_text("alert")

    await admin.go("jobs?queue=slack&state=completed")
    await expect(page.locator("tbody tr").first).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text("alert")


async def _find(page: Any, words: str) -> None:
    await expect(page.locator("dialog[open]")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Find or run")).to_be_focused()
    await page.keyboard.type(words)
    await page.keyboard.press("Enter")


OPENED = """async () => {
  dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true}));
  for (let n = 0; n < 10; n++) await Promise.resolve();
  return document.activeElement.getAttribute("role");
}"""


async def test_no_key_after_the_palette_was_called_is_lost(admin: Person) -> None:
    page = await admin.go("queues")

    assert await page.evaluate(OPENED) == "combobox", (
        "before the page is painted, as keys may arrive before that"
    )


TYPED_BEFORE_THE_PAINT = """async () => {
  const settle = async () => { for (let n = 0; n < 50; n++) await Promise.resolve(); };
  const paint = window.requestAnimationFrame;
  window.requestAnimationFrame = () => 0;
  history.pushState(null, "", "jobs");
  dispatchEvent(new PopStateEvent("popstate"));
  await settle();
  const field = document.querySelector('main input[role="combobox"]');
  field.value = "s";
  field.dispatchEvent(new InputEvent("input", {bubbles: true}));
  await settle();
  window.requestAnimationFrame = paint;
  return field.value;
}"""


async def test_no_key_typed_into_a_query_that_just_appeared_is_lost(admin: Person) -> None:
    page = await admin.go("jobs")
    await expect(page.get_by_role("combobox", name="Query")).to_be_visible()
    await page.locator("nav").get_by_role("link", name=re.compile("^Queues")).click()
    await expect(page.locator("h1")).to_have_text("Queues")

    assert await page.evaluate(TYPED_BEFORE_THE_PAINT) == "s"


CHOSEN_BEFORE_THE_PAINT = """async () => {
  const settle = async () => { for (let n = 0; n < 50; n++) await Promise.resolve(); };
  const paint = window.requestAnimationFrame;
  window.requestAnimationFrame = () => 0;
  const field = document.querySelector('main input[role="combobox"]');
  field.value = "sta error:x";
  field.setSelectionRange(3, 3);
  field.dispatchEvent(new InputEvent("input", {bubbles: true}));
  await settle();
  document.querySelector("main [role=option]").dispatchEvent(new MouseEvent("mousedown", {bubbles: true, cancelable: true}));
  await settle();
  window.requestAnimationFrame = paint;
  return [field.value, field.selectionStart];
}"""


async def test_the_caret_is_behind_a_completion_before_the_next_key(admin: Person) -> None:
    page = await admin.go("jobs")
    await expect(page.locator(".facet").first).to_be_visible()

    assert await page.evaluate(CHOSEN_BEFORE_THE_PAINT) == ["state: error:x", len("state:")]


async def test_the_page_speaks_spanish_and_remembers_it(admin: Person) -> None:
    page = await admin.go("queues")

    await admin.press("Español", inside="aside")
    await expect(page.locator("h1")).to_have_text("Colas")
    await page.reload()

    await expect(page.locator("h1")).to_have_text("Colas")
    await expect(page.locator("html")).to_have_attribute("lang", "es")
    for path, heading in (("dead", "Fallidos"), ("access", "Tokens y auditoría"), ("", "Resumen")):
        await admin.go(path)
        await expect(page.locator("h1")).to_have_text(heading)


async def test_colours_are_chosen_and_remembered(admin: Person) -> None:
    page = await admin.go("system")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = await page.evaluate(ground)

    await admin.press("Dark colours", inside="aside")
    after = await page.evaluate(ground)
    await page.reload()

    assert before != after == await page.evaluate(ground)


async def test_an_address_that_leads_nowhere_says_so(admin: Person) -> None:
    page = admin.page
    for path, words in (
        ("nothing-like-this", "There is nothing here"),
        ("job?queue=email&id=no-such.job/at%20all", "no job"),
        ("queue?name=nowhere", "nowhere"),
        ("jobs?queue=email&state=failed&key=nobody", "No job matches this query"),
    ):
        await page.goto(f"{admin.dashboard.url}/ui/{path}")
        await expect(page.locator("main")).to_contain_text(words)


async def test_a_server_that_goes_away_is_said_and_found_again(
    dashboard: DashboardServer, browser: Browser
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    environment = {**dashboard.environment, "QBULL_LOG_LEVEL": "ERROR"}
    with running(environment, "serve", "dashboard_app:app", "--port", port) as serving:
        other = DashboardServer(environment, address(serving))
        somebody = await person(other, browser, ADMIN)
        page = await somebody.go("")
        await expect(page.locator(".side .live")).to_have_text("Live")
        os.kill(serving.pid, signal.SIGKILL)
        serving.wait()
        await expect(page.get_by_role("alert")).to_contain_text("Live updates are interrupted")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    with running(environment, "serve", "dashboard_app:app", "--port", port) as serving:
        address(serving)
        await expect(page.locator(".side .live")).to_have_text("Live", timeout=20_000)
        await expect(page.get_by_role("alert")).to_have_count(0)
        await somebody.context.close()
    other.api.close()


async def test_numbers_that_cannot_be_refreshed_say_as_of_when_they_are(admin: Person) -> None:
    page = await admin.go("workers")
    await expect(page.locator(".side .live")).to_have_text("Live")
    broken = {"detail": "internal error; see the API's log"}
    await page.route("**/api/workers", lambda route: route.fulfill(status=500, json=broken))

    notice = page.locator(".stale")
    await expect(notice).to_contain_text(
        re.compile(r"As of \d\d:\d\d:\d\d.*could not be refreshed: internal")
    )
    await page.unroute("**/api/workers")

    await expect(notice).to_have_count(0)


MORE_VIEWS = (
    "?span=24h",
    "jobs",
    "jobs?q=verify state:failed",
    "jobs?q=colour:red",
    "queue?name=email&span=7d",
    "keys?queue=payments&key=nobody",
    "flows?find=axe",
    "schedules?name=daily-report",
    "limits?only=slack-api",
    "access?find=nothing-like-this",
    "no-such-view",
)
"""The same views with other things in them, and an address that leads nowhere."""


@needs_tool(AXE.is_file(), "axe-core is not installed: run make check with Node.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_any_view(
    dashboard: DashboardServer, browser: Browser, scheme: Any
) -> None:
    [failed] = dashboard.fail(1, "smtp.example.com refused the connection")
    done = dashboard.enqueue("reports", "monthly-statement", {"customer": "c", "month": "m", "seconds": 0.1})
    dashboard.until("reports", done, "completed")
    later = dashboard.enqueue("email", "welcome", {"user_id": "u1", "address": "a@b.c"}, delay=3600)
    order = dashboard.enqueue("maintenance", "place", {"order": "for axe"})
    ends = dashboard.until("maintenance", order, "completed")["result"]
    call = {"customer": "axe", "month": "m", "seconds": 120.0}
    running = dashboard.enqueue("reports", "monthly-statement", call)
    dashboard.until("reports", running, "active")
    somebody = await person(dashboard, browser, None, color_scheme=scheme, bypass_csp=True)
    digests = [dashboard.enqueue("slack", "digest", {"channel": f"#axe-{scheme}"}) for _ in range(3)]
    limited = dashboard.because("slack", digests, "shared-limit")
    found: dict[str, list[str]] = {"login": await _axe(await somebody.go(""), scheme)}
    await somebody.log_in(ADMIN)

    jobs = (
        ("email", failed),
        ("reports", done),
        ("email", later),
        ("orders", ends),
        ("reports", running),
        ("email", "of-long-ago"),
    )
    for path in (
        *VIEWS,
        *MORE_VIEWS,
        *(f"job?queue={queue}&id={id}" for queue, id in jobs),
    ):
        page = await somebody.go(path)
        await expect(page.locator(".loading")).to_have_count(0)
        found[path] = await _axe(page, scheme) + await page.evaluate(UNREACHED)
    await page.locator("#main").focus()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    found["help"] = await _axe(page, scheme)
    for queue, id in (("slack", limited), ("reports", running)):
        dashboard.ask("POST", f"queues/{queue}/jobs/{id}/cancel")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Find or run")).to_be_focused()
    found["palette"] = await _axe(page, scheme)

    await page.keyboard.press("Escape")
    found |= dict(await _faults_of_an_error(dashboard, somebody, scheme))

    assert {path: ills for path, ills in found.items() if ills} == {}
    assert somebody.wrong == []
    await somebody.context.close()


async def _faults_of_an_error(
    dashboard: DashboardServer, somebody: Person, scheme: str
) -> list[tuple[str, list[str]]]:
    """The page of a kind of error that is acknowledged, and its dialogs."""
    [kind] = [
        one["fingerprint"]
        for one in dashboard.ask("GET", "errors")["kinds"]
        if one["lastError"] == "ConnectionError: smtp.example.com refused the connection"
    ]
    dashboard.ask("PUT", f"queues/email/errors/{kind}/acknowledgement", {"note": "for axe"})
    page = await somebody.go(f"error?queue=email&kind={kind}")
    await expect(page.locator(".loading")).to_have_count(0)
    found = [("error", await _axe(page, scheme))]
    await page.get_by_role("button", name="Acknowledge …").click()
    found.append(("acknowledge", await _axe(page, scheme)))
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Retry all …").click()
    await page.get_by_label("Changed arguments, as JSON").fill('{"fail": null}')
    await expect(page.locator(".patched").first).to_be_visible()
    found.append(("retry all", await _axe(page, scheme)))
    dashboard.ask("DELETE", f"queues/email/errors/{kind}/acknowledgement")
    return found


async def _axe(page: Any, scheme: str) -> list[str]:
    assert await page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == GROUND[scheme]
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    await page.evaluate(AXE.read_text())
    result = await page.evaluate(
        "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", rules
    )
    return [
        f"{ill['id']}: {node['target']} {node['failureSummary'][:200]}"
        for ill in result["violations"]
        for node in ill["nodes"][:3]
    ]


LINK = """
import asyncio
from dashboard_app import app
from qbull.store.verbs.sessions import offer_login

async def main():
    async with app:
        print(await offer_login(app._client().store))

asyncio.run(main())
"""


async def test_a_login_link_opens_the_dashboard_and_leaves_the_address(
    dashboard: DashboardServer, browser: Browser
) -> None:
    command = [sys.executable, "-c", LINK]
    code = subprocess.check_output(command, env=dashboard.environment, cwd=HERE, text=True).strip()
    somebody = await person(dashboard, browser, None)

    page = await somebody.go(f"#login={code}")
    await expect(page.locator("h1")).to_have_text("Overview")
    assert "login" not in page.url
    other = await person(dashboard, browser, None)
    page = await other.go(f"#login={code}")
    await expect(page.locator("main")).to_contain_text("was used or has expired")
    for one in (somebody, other):
        await one.context.close()
