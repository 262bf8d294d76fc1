"""Same ids: every producer enqueues the same ids in the same moments. Exactly one of them is told that its call created the job."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from campaign_app import KEEP_ALL, RETRY, app
from circumstances import Circumstances

import qbull
from loads.oracle import check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, note, run_recorded

NAME = "same ids"
MOMENT = 0.25
"""Seconds for which all producers send the same ids."""
TOGETHER = 5
queue = app.queue("same", partitions=2, concurrency=5, retry=RETRY, keep=KEEP_ALL, alert=False)


@queue.task(id="same-{number}")
async def once(number: int) -> None:
    with run_recorded(NAME):
        pass


async def produce() -> None:
    """As all the others do, in the same moments. An error is not repeated: somebody else has the next moment."""
    while True:
        moment = int(time.monotonic() / MOMENT) + 1
        await asyncio.sleep(moment * MOMENT - time.monotonic())
        await asyncio.gather(*(_ask(moment * TOGETHER % (1 << 32) + n) for n in range(TOGETHER)))


async def _ask(number: int) -> None:
    job = f"same-{number}"
    note(NAME, "asked", job)
    try:
        handle = await once.enqueue(number=number)
    except qbull.ServerError as error:
        note(NAME, "error", job, error=type(error).__name__, text=str(error)[:300])
        return
    note(NAME, "told", job, created=handle.created)


def check(events: list[Event], circumstances: Circumstances) -> Report:
    """An id of which a call raised, or whose caller died, may have been created by that call."""
    report = Report(NAME)
    check_delivery(report, events)
    check_never_twice(report, runs_of(events))
    asked, told, created = Counter[str](), Counter[str](), Counter[str]()
    for event in events:
        match event.what:
            case "asked":
                asked[event.job] += 1
            case "told":
                told[event.job] += 1
                created[event.job] += bool(event.facts["created"])
    report.counts["told twice that they are new"] = sum(many > 1 for many in created.values())
    report.faults += [f"{job} was created {many} times" for job, many in created.items() if many > 1]
    report.faults += [
        f"{job}: nobody was told that it was created"
        for job, many in told.items()
        if many == asked[job] and not created[job]
    ]
    return report
