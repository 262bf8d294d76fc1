"""`qbull demo`: enqueue jobs until it is stopped, and show them in a live view."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import click

from qbull.cli.demo.app import app, archive, charge, forecast, newsletter, remind, render, welcome
from qbull.cli.terminal import ago, console, table
from qbull.core.job_info import JobInfo
from qbull.queue import Queue
from qbull.store.read.inspect import Counts

DEMO_PRODUCE_SECONDS = 0.25
"""Seconds between two rounds of new jobs."""
PLAIN_VIEW_SECONDS = 2.0
DEMO_COLUMNS = (
    "queue",
    ">waiting",
    ">active",
    ">delayed",
    ">completed",
    ">retried",
    ">failed",
    ">per second",
)


async def produce() -> None:
    """Enqueue a few jobs of each kind, again and again."""
    steps = dict.fromkeys((f"account-{n}" for n in range(8)), 0)
    dice = random.Random()  # noqa: S311 - a demo
    while True:
        user = f"user-{dice.randrange(1000)}"
        await welcome.enqueue_many(
            [{"user": user, "refusals": dice.choice((0, 0, 0, 1, 2))} for _ in range(3)]
        )
        address = dice.choice((f"{user}@example.com", f"{user}@example.com", "nowhere"))
        await newsletter.enqueue(user=user, address=address)
        for account in dice.sample(sorted(steps), 4):
            steps[account] += 1
            await charge.enqueue(account=account, step=steps[account], refusals=dice.choice((0, 0, 0, 0, 1)))
        await render.enqueue(month=dice.randrange(1, 13))
        await remind.options(delay=dice.uniform(1, 10)).enqueue(user=user, about="the cart")
        if dice.random() < 0.1:
            await archive.enqueue(month=dice.randrange(1, 13))
        if dice.random() < 0.3:
            await forecast.enqueue(months=dice.randrange(1, 13))
        await asyncio.sleep(DEMO_PRODUCE_SECONDS)


async def show() -> None:
    """Show the queues until cancelled: a live table in a terminal, otherwise a line every two seconds."""
    view = DemoView()
    if not sys.stdout.isatty():
        while True:
            await view.refresh()
            click.echo(view.line())
            await asyncio.sleep(PLAIN_VIEW_SECONDS)
    from rich.live import Live

    await view.refresh()
    with Live(view.draw(), console=console(), auto_refresh=False) as live:
        while True:
            live.update(view.draw(), refresh=True)
            await asyncio.sleep(0.5)
            await view.refresh()


class DemoView:
    """The counts and last failures of all queues at one moment, and the number of jobs per second."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}
        self._speed: dict[str, float] = {}
        self._failures: list[JobInfo] = []
        self._read_at = time.monotonic()

    async def refresh(self) -> None:
        """Read the counts and failures again."""
        before, since = self._counts, self._read_at
        self._counts = {queue.name: await queue.stats() for queue in app.queues.values()}
        self._read_at = time.monotonic()
        for name, counts in self._counts.items():
            if name in before:
                speed = (_finished(counts) - _finished(before[name])) / (self._read_at - since)
                self._speed[name] = 0.7 * self._speed.get(name, speed) + 0.3 * speed
        self._failures = await _last_failures(list(app.queues.values()))

    def line(self) -> str:
        """Return the view as one line of text."""
        parts = [
            f"{name} {counts.waiting + counts.active + counts.delayed} to do, {_finished(counts)} done"
            for name, counts in self._counts.items()
        ]
        return "; ".join(parts) + f"; {sum(self._speed.values()):.0f} jobs/s"

    def draw(self) -> Any:
        """Return the view as tables for rich."""
        from rich.console import Group
        from rich.text import Text

        failures = [[ago(job.finished_at), job.queue, job.task, job.error] for job in self._failures]
        return Group(
            table(DEMO_COLUMNS, [self._row(name, counts) for name, counts in self._counts.items()]),
            Text("\nlast failures", style="bold"),
            table(("", "", "", "*"), failures),
            Text("\npress Ctrl-C to stop", style="dim"),
        )

    def _row(self, name: str, counts: Counts) -> list[object]:
        return [
            name,
            counts.waiting,
            counts.active,
            counts.delayed,
            counts.totals.get("completed", 0),
            counts.totals.get("retried", 0),
            counts.totals.get("failed", 0),
            f"{self._speed.get(name, 0):.1f}",
        ]


async def _last_failures(queues: list[Queue], count: int = 6) -> list[JobInfo]:
    failures = [info for queue in queues for info in await queue.jobs("failed", 0, count)]
    failures.sort(key=lambda info: info.created_at if info.finished_at is None else info.finished_at)
    return failures[-count:]


def _finished(counts: Counts) -> int:
    return counts.totals.get("completed", 0) + counts.totals.get("failed", 0)
