"""An incident: 3,400 failures of three kinds, a lost worker, an overdue schedule, a frozen server. The overview tells the truth about each."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import ADMIN, HERE, VIEWS, DashboardServer, Person, address, person, running
from incident_truth import NOTICED_SECONDS, SAMPLE, Truth, lies, moment_of, samples_of
from playwright.async_api import Browser, Page, Request, expect
from playwright.async_api import Error as BrowserError

from conftest import eventually
from needed_tools import needs_tool
from qbull.api.dashboard import Dashboard as Built
from qbull.embedded.server import EmbeddedServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("page"),
    needs_tool(Built()._there, "the dashboard was not built: Node.js is needed for that"),
]

KINDS = {"template": 2_570, "refused": 510, "busy": 320}
"""3,400 failures: how many of which kind."""
STALE_SECONDS = 3.0
FROZEN_SECONDS = 7


@dataclass
class Incident:
    """A server, its dashboard, and the processes that can be killed or frozen."""

    dashboard: DashboardServer
    valkey_pid: int
    worker: subprocess.Popen[bytes]
    directory: Path
    """What the tasks count themselves."""


@pytest.fixture(scope="module", name="incident")
def start_incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    valkey = EmbeddedServer.open(tmp_path_factory.mktemp("incident"))
    directory = tmp_path_factory.mktemp("truth")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("QBULL", "REDIS"))},
        "QBULL_URL": f"unix://:{valkey.password}@{valkey.socket}?db=0",
        "QBULL_PREFIX": "incident",
        "QBULL_ADMIN_TOKEN": ADMIN,
        "QUEUES_UI_PASS": "a password for the page",
        "PYTHONPATH": str(HERE),
        "TZ": "UTC",
        "QBULL_LOG_LEVEL": "ERROR",
        "INCIDENT_DIRECTORY": str(directory),
    }
    work = ("worker", "incident_app:app", "--processes", "1", "--queues")
    serve = ("serve", "incident_app:app", "--port", "0")
    with (
        running(environment, *work, "mail", unheard=True),
        running(environment, *work, "chores", unheard=True) as working,
        running(environment, *serve) as serving,
    ):
        dashboard = DashboardServer(environment, address(serving))
        deadline = time.monotonic() + 20
        while not dashboard.ask("GET", "queues/stats")["queues"].get("chores", {}).get("completed"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Incident(dashboard, _pid_of(valkey), working, directory)
        dashboard.api.close()
    valkey.close()


def _pid_of(valkey: EmbeddedServer) -> int:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(valkey.socket))
        client.sendall(f"AUTH {valkey.password}\r\nINFO server\r\n".encode())
        told = b""
        while (found := re.search(rb"process_id:(\d+)\r\n", told)) is None:
            told += client.recv(65536)
    return int(found[1])


FAIL = """
import asyncio, sys
from incident_app import app, send

async def main():
    kinds = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2])))
    async with app:
        for part in range(10):  # over twenty seconds, so that somebody can look meanwhile
            for kind, n in kinds.items():
                await send.enqueue_many([{"kind": kind}] * (n // 10))
            await asyncio.sleep(2)

asyncio.run(main())
"""


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_the_overview_tells_the_truth_second_by_second(incident: Incident, browser: Browser) -> None:
    """While 3,400 jobs fail, the server freezes for some seconds, and then a worker is killed, whose schedule stands still.

    What the overview says is recorded once a second, and each time compared with what was the case then: never more failures
    of a kind than there were, never fewer than some seconds ago; no problem before it is there, and none left out.
    """
    somebody = await person(incident.dashboard, browser, ADMIN)
    page = await somebody.go("")
    await expect(page.locator(".side .live")).to_have_text("Live")
    counts = [part for kind, n in KINDS.items() for part in (kind, str(n))]
    fail = [sys.executable, "-c", FAIL, *counts]
    truth = Truth(incident.directory)
    with truth.recorded():
        await page.evaluate(SAMPLE)
        with subprocess.Popen(fail, env=incident.dashboard.environment, cwd=HERE) as failing:
            await expect(page.locator(".failing li").first).to_be_visible(timeout=60_000)
            frozen_at = time.time()
            with frozen(incident.valkey_pid):
                await page.wait_for_timeout(FROZEN_SECONDS * 1000)
                truth.frozen = frozen_at, time.time()
            assert failing.wait(90) == 0
        _kill_the_worker(incident, truth)
        problems = page.locator(".verdict .problems li")
        await expect(problems.filter(has_text="lost and not replaced")).to_be_visible(timeout=90_000)
        await expect(problems.filter(has_text="It has not run for")).to_be_visible(timeout=120_000)
        await expect(page.locator(".failing li")).to_have_count(len(KINDS))
        await page.wait_for_timeout(5000)
        samples = await samples_of(page)

    assert truth.until(time.time()) == KINDS == samples[-1].counts
    assert incident.dashboard.ask("GET", "queues/mail/stats")["failed"] == sum(KINDS.values())
    pauses = [after.at - before.at for before, after in pairwise(samples)]
    assert len(samples) > 60 and max(pauses) < 3, "the overview was not looked at once a second"
    half_way = [one for one in samples if 0 < sum(one.counts.values()) < sum(KINDS.values())]
    assert len(half_way) >= 5, "the overview was never seen half-way: the test compared nothing"
    began, ended = truth.frozen
    assert [one for one in samples if began + NOTICED_SECONDS <= one.at <= ended], (
        "nobody looked at the frozen server"
    )
    compared = {f"{one.at - samples[0].at:.0f} s": lies(truth, one) for one in samples}
    assert {second: wrong for second, wrong in compared.items() if wrong} == {}
    line = problems.filter(has_text="attempts failed")
    await expect(line).to_contain_text("3,400 of 3,400")
    await _follow_the_lines(incident, page)
    await _acknowledge_the_most_frequent(somebody)
    await somebody.context.close()


def _kill_the_worker(incident: Incident, truth: Truth) -> None:
    """The one of the queue with the schedule. Its supervisor too, so that nobody replaces it."""
    [truth.lost_worker] = [
        one["id"] for one in incident.dashboard.ask("GET", "workers")["workers"] if "chores" in one["queues"]
    ]
    children = Path(f"/proc/{incident.worker.pid}/task/{incident.worker.pid}/children").read_text().split()
    truth.killed_at = time.time()
    os.kill(incident.worker.pid, signal.SIGKILL)
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    incident.worker.wait()


async def _follow_the_lines(incident: Incident, page: Page) -> None:
    """Each problem has its action beside it, and the other views say the same."""
    badge = int(await page.locator("nav a", has_text="Alerts").locator(".nav-count").inner_text())
    health = incident.dashboard.api.get("queues/health").json()
    assert badge == sum(one["severity"] != "info" for one in health["problems"])
    overdue = page.locator(".verdict .problems li", has_text="It has not run for")
    await expect(overdue).to_contain_text("every-second")
    await overdue.get_by_role("link", name="Show the schedules").click()
    await expect(page.locator("h1")).to_have_text("Schedules")
    await expect(page.locator("h1")).to_be_focused()
    await page.locator("nav a", has_text="Workers").click()
    await expect(page.locator(".workers tr.lost")).to_contain_text("lost")
    await page.locator("nav a", has_text="Overview").click()
    await expect(page.locator("h1")).to_have_text("Overview")


async def _acknowledge_the_most_frequent(somebody: Person) -> None:
    """A kind that somebody knows of moves to the end of the overview's list, with the note."""
    page, rows = somebody.page, somebody.page.locator(".failing li")
    await expect(rows.first).to_contain_text("first_name")
    await rows.first.get_by_role("link").click()
    await page.get_by_role("button", name="Acknowledge …").click()
    await page.get_by_label("Note").fill("the template is on its way")
    await somebody.confirm("Acknowledge")
    await expect(page.get_by_role("region", name="Acknowledged")).to_be_visible()
    await page.get_by_role("link", name="Overview").click()
    await expect(rows).to_have_count(len(KINDS))
    await expect(rows.last).to_contain_text("the template is on its way")


async def test_a_frozen_server_greys_every_view_within_three_seconds(
    incident: Incident, browser: Browser
) -> None:
    somebody = await person(incident.dashboard, browser, ADMIN)
    for path in (view.replace("payments", "mail").replace("email", "mail") for view in VIEWS):
        page = await somebody.go(path)
        await expect(page.locator(".side .live")).to_have_text("Live")
        coloured = await _colour(page)
        await page.evaluate(SAMPLE_LAG)
        began, frozen_at = time.monotonic(), time.time()
        with frozen(incident.valkey_pid):
            await expect(page.locator(".stale")).to_contain_text(re.compile(r"As of \d\d:\d\d:\d\d"))
            took = time.monotonic() - began
            known = moment_of(await page.locator(".stale b").inner_text(), frozen_at)
            assert -STALE_SECONDS <= known - frozen_at <= 1, (known, frozen_at)
            await expect(page.locator(".side .live")).not_to_have_text("Live")
            assert await _colour(page) != coloured
        assert took < STALE_SECONDS + 0.5 + 2 * await _lag(page), f"{path}: {took:.1f} s"
        await expect(page.locator(".side .live")).to_have_text("Live", timeout=30_000)
        await expect(page.locator(".stale")).to_have_count(0)
    assert somebody.wrong == []
    await somebody.context.close()


SAMPLE_LAG = """
() => {
  window.lag = 0;
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    window.lag = Math.max(window.lag, now - last - 50);
    last = now;
  }, 50);
}
"""


async def _lag(page: Page) -> float:
    """By how many seconds the page's own timers were late at most: all of it is the machine's."""
    return float(await page.evaluate("window.lag")) / 1000


async def _colour(page: Page) -> Any:
    return await page.evaluate("getComputedStyle(document.querySelector('main')).color")


async def test_a_frozen_dashboard_server_is_noticed_too(incident: Incident, browser: Browser) -> None:
    environment = incident.dashboard.environment
    with running(environment, "serve", "incident_app:app", "--port", "0") as serving:
        other = DashboardServer(environment, address(serving))
        somebody = await person(other, browser, ADMIN)
        page = await somebody.go("")
        await expect(page.locator(".side .live")).to_have_text("Live")
        await page.evaluate(SAMPLE_LAG)
        began = time.monotonic()
        with frozen(serving.pid):
            await expect(page.locator(".stale")).to_contain_text("As of")
            assert time.monotonic() - began < STALE_SECONDS + 0.5 + 2 * await _lag(page)
        await expect(page.locator(".side .live")).to_have_text("Live", timeout=30_000)
        await somebody.context.close()
        other.api.close()


async def test_a_page_that_is_opened_while_the_server_is_frozen_says_so(
    incident: Incident, browser: Browser
) -> None:
    """It shows no log-in: the session is still there. It goes on by itself when the server answers."""
    somebody = await person(incident.dashboard, browser, ADMIN)
    await somebody.go("queues")
    page = somebody.page

    async def nobody_is_known() -> bool:
        """The API keeps for some seconds whose session it is."""
        try:
            answer = await page.request.get(f"{incident.dashboard.url}/api/me", timeout=1000)
        except BrowserError:
            return True
        return not answer.ok

    with frozen(incident.valkey_pid):
        await eventually(nobody_is_known)
        await page.reload()
        await expect(page.locator("h1")).to_have_text("The job server does not answer.", timeout=15_000)
        await expect(page.get_by_label("Password")).to_have_count(0)
    await expect(page.locator("h1")).to_have_text("Queues", timeout=30_000)
    assert somebody.wrong == []
    await somebody.context.close()


class OpenStreams:
    """The tabs that read the stream now. Two may do for a moment, if a leader answers late."""

    def __init__(self) -> None:
        self.requests: dict[Request, int] = {}

    def watch(self, page: Page, tab: int) -> None:
        page.on("request", lambda request: self._asked(request, tab))
        page.on("requestfinished", lambda request: self.requests.pop(request, None))
        page.on("requestfailed", lambda request: self.requests.pop(request, None))
        page.on("close", lambda _: self._closed(tab))

    @property
    def tabs(self) -> list[int]:
        return sorted(self.requests.values())

    def _asked(self, request: Request, tab: int) -> None:
        if "/api/events" in request.url:
            self.requests[request] = tab

    def _closed(self, tab: int) -> None:
        self.requests = {request: other for request, other in self.requests.items() if other != tab}


async def test_nine_tabs_share_one_stream(incident: Incident, browser: Browser) -> None:
    somebody = await person(incident.dashboard, browser, ADMIN)
    streams = OpenStreams()
    pages = []
    for tab in range(9):
        page = somebody.page if tab == 0 else await somebody.context.new_page()
        streams.watch(page, tab)
        await page.goto(f"{incident.dashboard.url}/ui/{'queues' if tab % 2 else ''}", timeout=10_000)
        await expect(page.locator(".side .live")).to_have_text("Live")
        pages.append(page)

    await eventually(lambda: _one_reads(streams, range(9)))
    # The tab that reads the stream closes: another one takes over, and nobody waits for the crash timer.
    [leader] = streams.tabs
    await pages[leader].close()
    rest = {tab: page for tab, page in enumerate(pages) if tab != leader}
    await eventually(lambda: _one_reads(streams, rest))
    for page in rest.values():
        await expect(page.locator(".side .live")).to_have_text("Live")
        await expect(page.locator(".stale")).to_have_count(0)
    await eventually(lambda: _one_reads(streams, rest))
    await somebody.context.close()


async def _one_reads(streams: OpenStreams, among: Iterable[int]) -> bool:
    return len(streams.tabs) == 1 and streams.tabs[0] in set(among)


HIDE = """
hidden => {
  Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
  Object.defineProperty(document, 'visibilityState', {value: hidden ? 'hidden' : 'visible', configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}
"""


async def test_a_hidden_tab_lets_go_at_once(incident: Incident, browser: Browser) -> None:
    somebody = await person(incident.dashboard, browser, ADMIN)
    page = somebody.page
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    await somebody.go("")
    await expect(page.locator(".side .live")).to_have_text("Live")

    await page.evaluate(HIDE, True)
    await eventually(lambda: _has_ended(ended), within=2)
    async with page.expect_request("**/api/events*"):
        await page.evaluate(HIDE, False)
    await expect(page.locator(".side .live")).to_have_text("Live")
    await somebody.context.close()


async def _has_ended(urls: list[str]) -> bool:
    return any("/api/events" in url for url in urls)


async def test_an_idle_tab_costs_no_processor_time(incident: Incident, browser: Browser) -> None:
    somebody = await person(incident.dashboard, browser, ADMIN)
    page = await somebody.go("queues")
    await expect(page.locator(".side .live")).to_have_text("Live")

    running = await page.evaluate("document.getAnimations().filter(a => a.playState === 'running').length")

    assert running == 0, "an animation that never ends paints all the time"
    await somebody.context.close()
