"""How long each view of the dashboard takes with 1,000,000 jobs on the server: `python tests/ui/million.py [JOBS]`, part of `make proofs`.

Most of them wait, in lanes and without; some are for later, some are done, some have failed. A worker goes on with them meanwhile, as
slowly as the queues say. Each view is opened by its address in a real Chromium. It is usable when its heading is there and nothing in it says any
more that it is loading. A view that takes more than a second is an exit code of 1.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from browser import options
from dashboard_server import ADMIN, VIEWS, address, running
from playwright.sync_api import Page, sync_playwright

from qbull.embedded.server import EmbeddedServer

ROUNDS = 5
LIMIT = 0.5
FIRST_HIT = 1.0
TOGETHER = 20_000
SEARCHES = ("customer-606", "args.customer:customer-606", 'error:"depot 3"', "customer-77 state:waiting")
"""Over all queues. A customer has jobs in several of them."""
LOOKS = (
    "queue?name=parcels",
    "jobs?queue=parcels&state=waiting",
    "jobs?queue=parcels&state=delayed",
    "jobs?queue=parcels&state=waiting&task=deliver",
    "jobs?queue=parcels&state=waiting&key=customer-77",
    "jobs?queue=letters&state=waiting&payload=page=4711",
    "jobs?queue=returns&state=failed",
    "jobs?queue=returns&state=failed&errorContains=depot+3",
    "jobs?queue=returns&state=completed",
    "keys?queue=parcels",
    "keys?queue=parcels&key=customer-77",
    "dead?queue=returns",
    "queue?name=parcels&span=24h",
    "queue?name=parcels&span=7d",
    "queue?name=letters&span=30d",
    "?span=24h",
    "jobs",
    "jobs?q=state:failed",
)
"""Into the queues of million_app.py, beside the views that need no queue."""


def main(jobs: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        valkey = EmbeddedServer.open(Path(directory))
        os.environ |= {
            "QBULL_URL": f"unix://:{valkey.password}@{valkey.socket}?db=0",
            "QBULL_PREFIX": "million",
            "QBULL_ADMIN_TOKEN": ADMIN,
            "QBULL_LOG_LEVEL": "ERROR",
            "PYTHONPATH": str(Path(__file__).parent),
        }
        try:
            return look(jobs)
        finally:
            valkey.close()


def look(jobs: int) -> int:
    began = time.monotonic()
    with (
        running(dict(os.environ), "worker", "million_app:app", "--processes", "1", unheard=True),
        running(dict(os.environ), "serve", "million_app:app", "--port", "0") as serving,
    ):
        where = address(serving)
        id = asyncio.run(fill(jobs))
        print(f"{jobs:,} jobs after {time.monotonic() - began:.0f} s", flush=True)
        with sync_playwright() as play:
            browser = play.chromium.launch(**options())  # type: ignore[arg-type]
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            answer = context.request.post(
                f"{where}/api/login", data={"token": ADMIN}, headers={"origin": where}
            )
            assert answer.ok, answer.text()
            page = context.new_page()
            plain = [view for view in VIEWS if "?" not in view]
            kind = error_kind(page, where)
            views = (*plain, *LOOKS, f"job?queue=parcels&id={id}", f"error?queue=returns&kind={kind}")
            took = {view: [seconds(page, f"{where}/ui/{view}") for _ in range(ROUNDS)] for view in views}
            found = {words: [search(page, where, words) for _ in range(ROUNDS)] for words in SEARCHES}
            browser.close()
    are_views_fast = told("view", took, LIMIT)
    return int(not told("first hit of a search", found, FIRST_HIT) or not are_views_fast)


def told(what: str, took: dict[str, list[float]], limit: float) -> bool:
    """Print the times. Whether all are short enough."""
    print(f"{what:58} median   longest of {ROUNDS}")
    for name, times in took.items():
        slow = "  SLOW" if median(times) > limit else ""
        print(f"{name or 'overview':58} {median(times):5.2f} s  {max(times):5.2f} s{slow}")
    return all(median(times) <= limit for times in took.values())


def error_kind(page: Page, where: str) -> str:
    """The kind of error that failed most."""
    return str(page.request.get(f"{where}/api/errors").json()["kinds"][0]["fingerprint"])


READ = """() => Number(/([0-9,]+)( of [0-9,]+)? read/.exec(document.querySelector(".list-head [role=status]")?.textContent ?? "")?.[1].replaceAll(",", "") ?? 0)"""
"""How many jobs the search has read, as the view says."""


def search(page: Page, where: str, words: str) -> float:
    """Seconds until the first hit. After it, the view says that more and more was read, until the page is full or all is read."""
    began = time.monotonic()
    page.goto(f"{where}/ui/jobs?q={quote(words)}", wait_until="commit")
    page.locator("main tbody tr").first.wait_for()
    took = time.monotonic() - began
    before = page.evaluate(READ)
    assert before > 0, words
    if page.get_by_role("button", name="Stop").count():
        page.wait_for_function(f"before => ({READ})() > before", arg=before, timeout=5_000)
    return took


async def fill(jobs: int) -> str:
    """Seven in ten wait in lanes, two without; a twentieth is for later, as many are done or have failed. Gives one that waits in a lane."""
    import million_app  # behind the environment

    async with million_app.app:
        ended = jobs // 20
        await send(million_app.take_back, ended, lambda n: {"customer": f"customer-{n}", "parcel": n})
        await send(
            million_app.deliver.options(delay=86_400), ended, lambda n: {"customer": f"late-{n}", "parcel": n}
        )
        await send(million_app.print_letter, jobs // 5, lambda n: {"customer": f"customer-{n}", "page": n})
        await send(
            million_app.deliver, jobs * 7 // 10, lambda n: {"customer": f"customer-{n % 50_000}", "parcel": n}
        )
        last = await million_app.deliver.enqueue(customer="customer-77", parcel=jobs)
        while (await million_app.returns.stats()).unfinished:
            await asyncio.sleep(0.2)
        return last.id


async def send(call: Any, many: int, arguments: Any) -> None:
    for first in range(0, many, TOGETHER):
        await call.enqueue_many([arguments(n) for n in range(first, min(first + TOGETHER, many))])


def seconds(page: Page, url: str) -> float:
    began = time.monotonic()
    page.goto(url, wait_until="commit")
    page.locator("h1").first.wait_for()
    while page.locator(".loading").count():
        page.locator(".loading").first.wait_for(state="detached")
    took = time.monotonic() - began
    assert page.locator(".blank.bad").count() == 0, (url, page.locator("main").inner_text())
    return took


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
