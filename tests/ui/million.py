"""How long each view of the dashboard takes with 1,000,000 jobs on the server: `python tests/ui/million.py [JOBS]`, part of `make proofs`.

Most of them wait, in lanes and without; some are for later, some are done, some have failed, and some are flows. A worker goes on with them
meanwhile, as slowly as the queues say. Each view is opened by its address in a real Chromium. It is usable when its heading is there and nothing in
it says any more that it is loading. A view passes if the median of its rounds is at most half a second; a search over all queues if its first hit is
there within a second and the page says after that, again and again, how much was read. Each has a line with PASS or FAIL. One FAIL is an exit code
of 1. Whatever hangs is given up: the program ends by itself after DEADLINE_SECONDS at the latest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import quote

from browser import options
from dashboard_server import ADMIN, VIEWS, address, running
from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Page, sync_playwright

from qbull.embedded.server import EmbeddedServer

ROUNDS = 5
VIEW_SECONDS = 0.5
FIRST_HIT_SECONDS = 1.0
PROGRESS_SECONDS = 1.0
"""After the first hit the page says within so many seconds that more was read."""
DEADLINE_SECONDS = 1800
FILL_SECONDS = 900
GIVE_UP_MS = 10_000
"""A view that takes longer failed, and is not opened again."""
SEARCH_SECONDS = 20.0
"""A search is watched for so long."""
TOGETHER = 20_000
SEARCHES = (
    "customer-606",
    "args.customer:customer-606",
    'error:"depot 3"',
    "customer-77 state:waiting",
    "nobody-has-this",
)
"""Over all queues. A customer has jobs in several of them. The last finds nothing, so that all is read."""
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
    "flows?find=customer-3",
    "jobs",
    "jobs?q=state:failed",
)
"""Into the queues of million_app.py, beside the views that need no queue."""


class Search(NamedTuple):
    """What a search showed: the seconds until its first hit, and how much was read by when, in seconds."""

    first_hit: float | None
    read: list[tuple[float, int]]
    total: int
    ended: bool

    @property
    def goes_on(self) -> bool:
        """Whether the page said again and again that more was read, until the search was over."""
        times = [at for at, _ in self.read]
        pauses = [after - before for before, after in pairwise(times)]
        return self.ended and all(pause <= PROGRESS_SECONDS for pause in pauses)


class Filled(NamedTuple):
    """A job that waits in a lane, and the last job of a flow."""

    job: str
    flow: str


def main(jobs: int) -> int:
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(DEADLINE_SECONDS)
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


def _give_up(*_: object) -> None:
    raise SystemExit(f"FAIL: not done after {DEADLINE_SECONDS} s")


def look(jobs: int) -> int:
    began = time.monotonic()
    with (
        running(dict(os.environ), "worker", "million_app:app", "--processes", "1", unheard=True),
        running(dict(os.environ), "serve", "million_app:app", "--port", "0") as serving,
    ):
        where = address(serving)
        filled = asyncio.run(fill(jobs))
        print(f"{jobs:,} jobs after {time.monotonic() - began:.0f} s", flush=True)
        with sync_playwright() as play:
            browser = play.chromium.launch(**options())  # type: ignore[arg-type]
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.set_default_timeout(GIVE_UP_MS)
            page = context.new_page()
            print(f"sign-in, the first page of a new browser: {seconds(page, f'{where}/ui/'):.2f} s")
            answer = context.request.post(
                f"{where}/api/login", data={"token": ADMIN}, headers={"origin": where}
            )
            assert answer.ok, answer.text()
            plain = [view for view in VIEWS if "?" not in view]
            views = (
                *plain,
                *LOOKS,
                f"job?queue=parcels&id={filled.job}",
                f"job?queue=letters&id={filled.flow}",
                f"error?queue=returns&kind={error_kind(page, where)}",
            )
            print(f"\n{'view':62} first  median  longest of {ROUNDS}, limit {VIEW_SECONDS} s for the median")
            passed = [told(view, timed(page, f"{where}/ui/{view}")) for view in views]
            print(
                f"\n{'search over all queues':40} first hit, limit {FIRST_HIT_SECONDS} s; jobs read, and when"
            )
            found = [searched(words, search(page, where, words)) for words in SEARCHES]
            browser.close()
    print(f"\nviews: {sum(passed)} of {len(passed)} pass; searches: {sum(found)} of {len(found)} pass")
    return int(not all(passed + found))


def timed(page: Page, url: str) -> list[float]:
    """The seconds of each round; fewer rounds if one was given up."""
    took: list[float] = []
    for _ in range(ROUNDS):
        try:
            took.append(seconds(page, url))
        except BrowserError as error:
            print(f"given up: {str(error).splitlines()[0]}")
            break
    return took


def told(view: str, took: list[float]) -> bool:
    """Print the times of a view. Whether they are short enough."""
    passed = len(took) == ROUNDS and median(took) <= VIEW_SECONDS
    figures = f"{took[0]:5.2f}  {median(took):6.2f}  {max(took):6.2f} s" if took else ""
    print(f"{view or 'overview':62} {figures:24} {'PASS' if passed else 'FAIL'}", flush=True)
    return passed


def searched(words: str, found: Search) -> bool:
    """Print how a search went. Whether it was quick enough, and said how far it is."""
    is_quick = found.first_hit is not None and found.first_hit <= FIRST_HIT_SECONDS
    passed = found.goes_on and (is_quick or words == SEARCHES[-1])
    first = "no hit" if found.first_hit is None else f"{found.first_hit:.2f} s"
    read = [f"{n:,} at {at:.1f} s" for at, n in found.read]
    shown = read if len(read) <= 5 else [*read[:3], f"… {len(read) - 4} more …", read[-1]]
    rest = "" if found.ended else "; not over"
    print(
        f"{words:40} {first:8} {', '.join(shown)} of {found.total:,}{rest}  {'PASS' if passed else 'FAIL'}",
        flush=True,
    )
    return passed


def error_kind(page: Page, where: str) -> str:
    """The kind of error that failed most."""
    return str(page.request.get(f"{where}/api/errors").json()["kinds"][0]["fingerprint"])


WATCH = """() => {
    const seen = window.seen = { firstHit: null, read: [], total: 0, ended: false };
    const number = (text) => Number(text.replaceAll(",", ""));
    const look = () => {
        const now = performance.now() / 1000;
        const said = document.querySelector(".list-head [role=status]")?.textContent ?? "";
        const part = /([0-9,]+) of ([0-9,]+) read/.exec(said);
        const all = /all ([0-9,]+) read/.exec(said);
        if (seen.firstHit === null && document.querySelector("main tbody tr")) seen.firstHit = now;
        if (!part && !all) return;
        const read = number((part ?? all)[1]);
        seen.total = number(part ? part[2] : all[1]);
        if (read !== seen.read.at(-1)?.[1]) seen.read.push([now, read]);
        const stop = [...document.querySelectorAll(".list-head button")].some((one) => one.textContent === "Stop");
        if (all || !stop) seen.ended = true;
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
}"""
"""Seconds since the navigation began, of each change that the page shows."""


def search(page: Page, where: str, words: str) -> Search:
    """Open a search by its address, and watch what the page says until it is over: the page is full, or all is read."""
    watching = page.context.new_page()
    watching.add_init_script(f"({WATCH})()")
    try:
        watching.goto(f"{where}/ui/jobs?q={quote(words)}", wait_until="commit")
        until = time.monotonic() + SEARCH_SECONDS
        while not watching.evaluate("window.seen.ended") and time.monotonic() < until:
            watching.wait_for_timeout(100)
        seen = watching.evaluate("window.seen")
    finally:
        watching.close()
    read = [(float(at), int(n)) for at, n in seen["read"]]
    return Search(seen["firstHit"], read, int(seen["total"]), bool(seen["ended"]))


async def fill(jobs: int) -> Filled:
    """Seven in ten wait in lanes, two without; a twentieth is for later, as many are done or have failed."""
    import million_app  # behind the environment

    async with asyncio.timeout(FILL_SECONDS), million_app.app:
        ended = jobs // 20
        await send(million_app.take_back, ended, lambda n: {"customer": f"customer-{n}", "parcel": n})
        await send(
            million_app.deliver.options(delay=86_400), ended, lambda n: {"customer": f"late-{n}", "parcel": n}
        )
        flow = await million_app.subscribe("customer-0")
        for n in range(1, min(jobs // 1000, 500)):
            flow = await million_app.subscribe(f"customer-{n}")
        await send(million_app.print_letter, jobs // 5, lambda n: {"customer": f"customer-{n}", "page": n})
        await send(
            million_app.deliver, jobs * 7 // 10, lambda n: {"customer": f"customer-{n % 50_000}", "parcel": n}
        )
        last = await million_app.deliver.enqueue(customer="customer-77", parcel=jobs)
        while (await million_app.returns.stats()).unfinished:
            await asyncio.sleep(0.2)
        return Filled(last.id, flow)


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
    if page.locator(".blank.bad").count():
        raise BrowserError(page.locator("main").inner_text().replace("\n", " "))
    return took


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
