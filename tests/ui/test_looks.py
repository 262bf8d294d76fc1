"""Looks: nothing is cut off at any width, the environment is unmistakable, ids are short, and an idle tab rests."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from dashboard_server import ADMIN, VIEWS, DashboardServer, Person, address, person, running
from playwright.async_api import Browser, expect

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("ui")]

CUT = """() => {
    const may_scroll = ".scroll, .flow-scroll, .code, .log, .traceback, .tabs, .facets, .side, textarea, pre";
    const shown = (one) => `${one.tagName.toLowerCase()}.${one.getAttribute("class") ?? ""}: ${one.textContent.trim().slice(0, 60)}`;
    const found = [];
    for (const one of document.querySelectorAll(".frame *")) {
        if (one.clientWidth <= 1 || one.closest("svg, canvas, .unseen, .uplot, .skip") || one.closest(".cut")) continue;
        if (one.closest(may_scroll) && getComputedStyle(one.closest(may_scroll)).overflowX !== "visible") continue;
        if (one.matches("input, select")) continue;
        if (one.scrollWidth > one.clientWidth + 1) found.push(`${one.scrollWidth} > ${one.clientWidth} ${shown(one)}`);
    }
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth) found.push(`the page: ${page.scrollWidth} > ${page.clientWidth}`);
    return found;
}"""
"""The elements whose content is wider than they are. Texts that end in an ellipsis on purpose are `.cut`."""

IDLE_SECONDS = 6
SETTLED_SECONDS = 3
"""After these, the views that load when the browser has nothing else to do are there."""
MOST_IDLE_SHARE = 0.02
"""Of a core, for scripts, styles and layout together."""
MOST_PAINTED_SHARE = 0.06
"""Of a core, for all that a tab costs: a dot that pulsed cost 0.11 alone."""


@pytest.fixture(scope="session", name="jobs")
def make_jobs(dashboard: DashboardServer) -> list[str]:
    """A view of a job that failed, and of one in a flow."""
    [failed] = dashboard.fail(1, "a" * 90 + " is no mail server")
    placed = dashboard.enqueue("maintenance", "place", {"order": "a-rather-long-name-of-an-order"})
    last = dashboard.until("maintenance", placed, "completed")["result"]
    return [f"job?queue=email&id={failed}", f"job?queue=orders&id={last}", "nowhere"]


@pytest.mark.parametrize("width", [1440, 1024, 390, 320])
@pytest.mark.parametrize("language", ["en", "es"])
async def test_nothing_is_cut_off(
    dashboard: DashboardServer, browser: Browser, jobs: list[str], width: int, language: str
) -> None:
    viewport = {"width": width, "height": 800}
    one = await person(dashboard, browser, ADMIN, viewport=viewport, locale=f"{language}-ES")

    found: list[str] = []
    for path in (*VIEWS, *jobs):
        page = await one.go(path)
        await expect(page.locator(".bone")).to_have_count(0)
        found += [f"{path} at {width}: {fault}" for fault in await page.evaluate(CUT)]

    assert found == []
    await one.context.close()


RECORD_LABELS = """
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
        (this.canvas.labels ??= []).push({ width: this.measureText(text).width, x, y, align: this.textAlign, text });
        return fillText.call(this, text, x, y, ...more);
    };
"""
CUT_LABELS = """() => {
    const found = [];
    for (const canvas of document.querySelectorAll(".uplot canvas")) {
        const scale = canvas.width / canvas.getBoundingClientRect().width;
        const plot = canvas.closest(".uplot").querySelector(".u-over").getBoundingClientRect();
        const box = canvas.getBoundingClientRect();
        const [left, right] = [(plot.left - box.left) * scale, (box.right - plot.right) * scale];
        for (const { width, x, y, align, text } of canvas.labels ?? []) {
            if (align === "center" && (width / 2 > right || width / 2 > left)) found.push(`${text} at an end of the axis`);
            if (align === "right" && x - width < 0) found.push(`${text} starts at ${x - width}`);
            if (y > canvas.height || y < 0) found.push(`${text} is at ${y} of ${canvas.height}`);
        }
    }
    return found;
}"""
"""The labels of charts that do not fit, or would not at the ends of their axis: only some minutes have one there."""


@pytest.mark.parametrize("language", ["en", "es"])
async def test_no_label_of_a_chart_is_cut_off(
    dashboard: DashboardServer, browser: Browser, language: str
) -> None:
    dashboard.until("slack", dashboard.enqueue("slack", "alert", {"channel": "#a", "text": "b"}), "completed")
    one = await person(dashboard, browser, ADMIN, locale=f"{language}-ES")
    await one.context.add_init_script(RECORD_LABELS)

    found: list[str] = []
    for path in (
        "",
        "?span=24h",
        "queue?name=slack",
        "queue?name=slack&span=7d",
        "queue?name=slack&span=30d",
    ):
        page = await one.go(path)
        await expect(page.locator(".uplot canvas").first).to_be_visible()
        assert await page.evaluate(
            "() => [...document.querySelectorAll('.uplot canvas')].some(one => one.labels)"
        )
        found += [f"{path}: {fault}" for fault in await page.evaluate(CUT_LABELS)]

    assert found == []
    await one.context.close()


async def test_no_row_has_a_whole_id(dashboard: DashboardServer, admin: Person) -> None:
    for path in VIEWS:
        page = await admin.go(path)
        await expect(page.locator(".bone")).to_have_count(0)
        rows = await page.locator("main tbody").all_inner_texts()
        assert not [row for row in rows if re.search(r"\b[0-9a-f]{32}\b", row)], path


async def _processor_seconds(browser: Browser) -> float:
    """What the pages of a browser have cost until now, painting included: all its processes but the one that tests talk to."""
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    await session.detach()
    return sum(float(one["cpuTime"]) for one in processes if one["type"] != "browser")


@pytest.mark.parametrize("path", ["", "workers", "queue?name=payments"])
async def test_an_idle_tab_costs_almost_no_processor_time_not_even_for_painting(
    dashboard: DashboardServer, browser: Browser, admin: Person, path: str
) -> None:
    page = await admin.go(path)
    await expect(page.locator(".side .live")).to_have_text("Live")
    await page.wait_for_timeout(SETTLED_SECONDS * 1000)

    before = await _processor_seconds(browser)
    await page.wait_for_timeout(IDLE_SECONDS * 1000)
    share = (await _processor_seconds(browser) - before) / IDLE_SECONDS

    assert share < MOST_PAINTED_SHARE, f"{share:.1%} of a core"


async def test_an_idle_tab_costs_almost_no_cpu(dashboard: DashboardServer, admin: Person) -> None:
    page = await admin.go("workers")
    await expect(page.locator(".bone")).to_have_count(0)
    session = await admin.context.new_cdp_session(page)
    await session.send("Performance.enable")

    async def busy() -> float:
        """Seconds in which the page had a core."""
        told = (await session.send("Performance.getMetrics"))["metrics"]
        return sum(
            float(metric["value"])
            for metric in told
            if metric["name"] in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")
        )

    before = await busy()
    await page.wait_for_timeout(IDLE_SECONDS * 1000)
    share = (await busy() - before) / IDLE_SECONDS
    animated = await page.evaluate(
        "document.getAnimations().filter((one) => one.playState === 'running').length"
    )

    assert share < MOST_IDLE_SHARE
    assert animated == 0


@pytest.fixture(scope="module", name="production")
def serve_production(dashboard: DashboardServer) -> Iterator[str]:
    """The address of a second server that says that it is production."""
    environment = {**dashboard.environment, "QBULL_LOG_LEVEL": "ERROR", "QBULL_ENVIRONMENT": "staging"}
    with running(
        environment, "serve", "dashboard_app:app", "--port", "0", "--environment", "production"
    ) as one:
        yield address(one)


@pytest.mark.parametrize("width", [1440, 390])
async def test_production_is_unmistakable(
    dashboard: DashboardServer, browser: Browser, production: str, width: int
) -> None:
    there = DashboardServer(dashboard.environment, production)
    one = await person(there, browser, ADMIN, viewport={"width": width, "height": 800})
    page = await one.go("queues")

    badge = page.locator(".environment.production >> visible=true")
    await expect(badge).to_have_text("production")
    await expect(page).to_have_title(re.compile(r"^\[production\] "))
    bar = await page.evaluate(
        "getComputedStyle(document.querySelector('.in-production'), '::before').backgroundColor"
    )
    assert bar == "rgb(179, 32, 42)"
    there.api.close()
    await one.context.close()


async def test_without_a_name_there_is_no_badge(admin: Person) -> None:
    page = await admin.go("queues")

    await expect(page.locator(".environment")).to_have_count(0)
