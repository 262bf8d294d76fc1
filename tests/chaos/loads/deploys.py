"""Deploys: two versions of the code side by side. Version 2 has a task and an argument more than version 1.

The producer is of version 2. Workers of both versions serve the queue, and are replaced by one another. A worker of version 1
must return what only version 2 can run: nothing fails, no attempt is used up, and every job keeps its place.
"""

from __future__ import annotations

import asyncio
import os

from campaign_app import KEEP, app
from circumstances import Circumstances

import qbull
from loads.keyed import check_keyed, lot, produce_keyed
from loads.record import Event, Report, run_recorded

NAME = "deploys"
VERSION = int(os.environ.get("CHAOS_VERSION", "2"))
queue = app.queue(
    NAME, order="key", partitions=2, concurrency=4, retry=qbull.Retry(attempts=1), keep=KEEP, alert=False
)

if VERSION == 1:

    @queue.task(name="old_step", key="{key}", id="deploys:{key}:{number}")
    async def old_step(key: str, number: int) -> None:
        with run_recorded(NAME, key, number, version=1):
            await asyncio.sleep(lot(key, number) % 5 / 1000)

else:

    @queue.task(name="old_step", key="{key}", id="deploys:{key}:{number}")
    async def wider_step(key: str, number: int, extra: int = 0) -> None:
        with run_recorded(NAME, key, number, version=2, extra=extra):
            await asyncio.sleep(lot(key, number) % 5 / 1000)

    @queue.task(name="new_step", key="{key}", id="deploys:{key}:{number}")
    async def new_step(key: str, number: int) -> None:
        with run_recorded(NAME, key, number, version=2):
            await asyncio.sleep(lot(key, number) % 5 / 1000)


def needs_version(key: str, number: int) -> int:
    """One job in three is of the new task, one in three has the new argument."""
    return 1 if lot(key, number) % 3 == 0 else 2


async def produce() -> None:
    async def enqueue(key: str, n: int) -> qbull.Job[None]:
        match lot(key, n) % 3:
            case 0:
                return await wider_step.enqueue(key=key, number=n)
            case 1:
                return await wider_step.enqueue(key=key, number=n, extra=7)
        return await new_step.enqueue(key=key, number=n)

    await produce_keyed(NAME, queue, enqueue, keys=8, pause=0.12)


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = check_keyed(NAME, events, circumstances)
    began = [event for event in events if event.what == "began"]
    report.counts["by version 1"] = sum(event.facts["version"] == 1 for event in began)
    report.counts["by version 2"] = sum(event.facts["version"] == 2 for event in began)
    for event in began:
        if event.facts["version"] < needs_version(event.key, event.n):
            report.faults.append(f"{event.job} ran on code that does not have its task or argument")
        if event.facts["attempt"] > 1:
            report.faults.append(f"{event.job} used up an attempt")
        if lot(event.key, event.n) % 3 == 1 and event.facts.get("extra") != 7:
            report.faults.append(f"{event.job} ran without its argument")
    return report
