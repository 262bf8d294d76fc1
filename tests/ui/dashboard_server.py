"""A running dashboard: `qbull serve` on its own Valkey with a real worker, and people who use it with a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import pytest_asyncio
from browser import options
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect
from playwright.async_api import Error as BrowserError

from qbull.embedded.server import EmbeddedServer

HERE = Path(__file__).parent
ADMIN, VIEWER, PASSWORD = "admin-token-for-the-page", "viewer-token-for-the-page", "a password for the page"
QUEUES = ("email", "payments", "reports", "slack", "maintenance")

expect.set_options(timeout=10_000)

VIEWS = (
    "",
    "queues",
    "queue?name=payments",
    "jobs?queue=email&state=failed",
    "keys",
    "dead",
    "flows",
    "limits",
    "schedules",
    "workers",
    "alerts",
    "access",
    "system",
)
"""Every view that needs no job of its own: a new one belongs here, so that all that is asked of views is asked of it."""


class DashboardServer:
    """The address of the dashboard, and its API, with which tests prepare what it shows."""

    def __init__(self, environment: dict[str, str], url: str) -> None:
        self.environment = environment
        self.url = url
        self.api = httpx.Client(
            base_url=f"{url}/api/", headers={"authorization": f"Bearer {ADMIN}"}, timeout=30, trust_env=False
        )

    def enqueue(self, queue: str, task: str, payload: dict[str, Any], **options: Any) -> str:
        body = {"task": task, "payload": payload, "options": options}
        return str(self.ask("POST", f"queues/{queue}/jobs", body)["jobId"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.api.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json()

    def until(self, queue: str, id: str, *states: str) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        deadline = time.monotonic() + 20
        while True:
            job = self.ask("GET", f"queues/{queue}/jobs/{id}")
            if job["state"] in states:
                return dict(job)
            assert time.monotonic() < deadline, job
            time.sleep(0.03)

    def because(self, queue: str, ids: list[str], code: str) -> str:
        """The first of these jobs whose first reason to wait is this one, once there is one."""
        deadline = time.monotonic() + 20
        while True:
            reasons = {id: self._reason(queue, id) for id in ids}
            for id, reason in reasons.items():
                if reason == code:
                    return id
            assert time.monotonic() < deadline, reasons
            time.sleep(0.03)

    def enqueue_until_one_waits(self, queue: str, task: str, payload: dict[str, Any], code: str) -> list[str]:
        """Enqueue jobs until one keeps waiting for this reason; it is the last of them.

        Workers hear of a pause or a limit a moment after it was set, so the first jobs may still run.
        """
        ids: list[str] = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ids.append(self.enqueue(queue, task, payload))
            seen_until = time.monotonic() + 0.5
            while (is_waiting := self._reason(queue, ids[-1]) == code) and time.monotonic() < seen_until:
                time.sleep(0.03)
            if is_waiting:
                return ids
            time.sleep(0.1)
        raise AssertionError(f"no job of {queue} waits for {code}: {ids}")

    def _reason(self, queue: str, id: str) -> str:
        return str(self.ask("GET", f"queues/{queue}/jobs/{id}/why")["reasons"][0]["code"])

    def fail(self, n: int, error: str, task: str = "verify") -> list[str]:
        """Dead letters of the queue email."""
        ids = [
            self.enqueue("email", task, {"user_id": f"u-{k}", "address": f"a{k}@example.com", "fail": error})
            for k in range(n)
        ]
        for id in ids:
            self.until("email", id, "failed")
        return ids


class Inbox:
    """Where alerts are posted to: a real server in a thread of its own."""

    class _Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._Taking)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hooks"

    def __enter__(self) -> None:
        Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def running(
    environment: dict[str, str], *arguments: str, unheard: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """With `unheard`, what it says is not kept: it may be much."""
    command = [sys.executable, "-m", "qbull.cli.main", *arguments]
    words = subprocess.DEVNULL if unheard else subprocess.PIPE
    process = subprocess.Popen(command, env=environment, cwd=HERE, stderr=words)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def address(process: subprocess.Popen[bytes]) -> str:
    """Where it serves, once it says so."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(rb"http://127\.0\.0\.1:\d+", line)
        if found:
            return found.group().decode()
    raise AssertionError("qbull serve has ended")


@contextmanager
def serving(folder: Path, prefix: str, processes: int = 1) -> Iterator[DashboardServer]:
    """`qbull serve` for dashboard_app, with this many worker processes and a Valkey of its own."""
    valkey = EmbeddedServer.open(folder)
    inbox = Inbox()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("QBULL", "REDIS"))},
        "QBULL_URL": f"unix://:{valkey.password}@{valkey.socket}?db=0",
        "QBULL_PREFIX": prefix,
        "QUEUES_UI_PASS": PASSWORD,
        "QBULL_ADMIN_TOKEN": ADMIN,
        "QBULL_VIEWER_TOKEN": VIEWER,
        "QBULL_ALERT_URLS": inbox.url,
        "QBULL_ALERT_ALLOW": "127.0.0.1",
        "PYTHONPATH": str(HERE),
        "TZ": "UTC",
    }
    log = {**environment, "QBULL_LOG_LEVEL": "ERROR"}
    work = ("worker", "dashboard_app:app", "--processes", str(processes))
    with inbox, running(log, *work), running(log, "serve", "dashboard_app:app", "--port", "0") as serve:
        dashboard = DashboardServer(environment, address(serve))
        deadline = time.monotonic() + 20
        while len(dashboard.ask("GET", "workers")["workers"]) < processes:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield dashboard
        dashboard.api.close()
    valkey.close()


@pytest.fixture(scope="session", name="dashboard")
def open_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    """A Valkey of its own: other tests empty theirs."""
    with serving(tmp_path_factory.mktemp("page"), "dashboard") as dashboard:
        yield dashboard


@pytest_asyncio.fixture(scope="session", loop_scope="session", name="browser")
async def open_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        try:
            browser = await play.chromium.launch(**options())  # type: ignore[arg-type]
        except BrowserError as error:
            from needed_tools import skip_without_tool  # pytest's path has it, that of million.py has not

            why = str(error).strip().splitlines()[0]
            skip_without_tool(
                f"no Chromium: {why}; install the package chromium, or run: playwright install chromium"
            )
        yield browser
        await browser.close()


class Person:
    """Somebody with a browser. What the page was told not to do, and did, is kept."""

    def __init__(self, dashboard: DashboardServer, context: BrowserContext, page: Page) -> None:
        self.dashboard = dashboard
        self.context = context
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("request", lambda request: self._asked(request.url))

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.wrong.append(f"console: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith(self.dashboard.url):
            self.wrong.append(f"asked {url}")

    async def go(self, path: str) -> Page:
        """By the address, as from a link in a chat."""
        await self.page.goto(f"{self.dashboard.url}/ui/{path}")
        await self.loaded()
        return self.page

    async def reload(self) -> None:
        await self.page.reload()
        await self.loaded()

    async def loaded(self) -> None:
        """Wait until nothing loads: what loads moves buttons away from the pointer."""
        await expect(self.page.locator("h1").first).to_be_visible()
        await expect(self.page.locator("main .loading")).to_have_count(0)

    async def log_in(self, token: str) -> None:
        answer = await self.page.request.post(
            f"{self.dashboard.url}/api/login", data={"token": token}, headers={"origin": self.dashboard.url}
        )
        assert answer.ok, await answer.text()

    async def press(self, name: str, *, inside: str = "main") -> None:
        """Press a button once the page has loaded."""
        await self.loaded()
        await self.page.locator(inside).get_by_role("button", name=name, exact=True).first.click()

    async def undo(self, said: str) -> None:
        """What a word about what was done has for whoever wants it back."""
        await self.page.locator(".toast", has_text=said).get_by_role("button", name="Undo").click()

    async def confirm(self, name: str) -> None:
        """Press what a dialog ends with; it closes when that was done."""
        dialog = self.page.locator("dialog[open]")
        await dialog.locator("button[type=submit]", has_text=name).click()
        await expect(dialog).to_have_count(0)


async def person(dashboard: DashboardServer, browser: Browser, token: str | None, **options: Any) -> Person:
    usual = {"viewport": {"width": 1440, "height": 900}, "locale": "en-GB", "timezone_id": "Europe/Madrid"}
    context = await browser.new_context(**{**usual, **options})
    made = Person(dashboard, context, await context.new_page())
    if token is not None:
        await made.log_in(token)
    return made


@pytest_asyncio.fixture(loop_scope="session", name="admin")
async def make_admin(dashboard: DashboardServer, browser: Browser) -> AsyncIterator[Person]:
    made = await person(dashboard, browser, ADMIN)
    yield made
    await made.context.close()
    assert made.wrong == []


@pytest_asyncio.fixture(loop_scope="session", name="viewer")
async def make_viewer(dashboard: DashboardServer, browser: Browser) -> AsyncIterator[Person]:
    made = await person(dashboard, browser, VIEWER)
    yield made
    await made.context.close()
    assert made.wrong == []
