"""Tasks that log. LOGGED_APP_CONFIG says whether this app configures logging itself, as many do."""

from __future__ import annotations

import logging
import os

import qbull

if os.environ.get("LOGGED_APP_CONFIG"):
    logging.basicConfig(
        level=logging.INFO,
        format="OWN %(levelname)s %(name)s %(message)s",
        filename=os.environ["LOGGED_APP_CONFIG"],
    )

app = qbull.App(os.environ.get("EVERYDAY_URL") or "redis://127.0.0.1:1/0", prefix="test")
reports = app.queue("reports", order="key", retry=qbull.Retry(attempts=2, backoff="fixed", delay=0.01))
log = logging.getLogger("shop.reports")


@reports.task(key="{customer}")
async def render(customer: str) -> None:
    log.info("rendering on the loop", extra={"pages": 3, "task": "my own"})


@reports.task
def render_in_a_thread() -> None:
    log.info("rendering in a thread")


@reports.task(cpu=True)
def render_in_a_process() -> None:
    log.info("rendering in a process with %d%%", 100, extra={"pages": 4, "odd": "\ud800"})
    log.debug("nobody wants this")
    try:
        raise ValueError("caught")
    except ValueError:
        log.exception("and an error")


@reports.task(chunk=2, wait=5)
async def render_many(names: list[str]) -> None:
    log.info("rendering %d", len(names))


@reports.task
async def break_down() -> None:
    raise KeyError("no such page")


@reports.task(cpu=True)
def break_down_in_a_process() -> None:
    raise KeyError("no such page")
