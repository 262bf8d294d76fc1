"""Expiry: jobs that must start within a second. One that did not must never start; one that has started once is worked off."""

from __future__ import annotations

import asyncio
import random

from campaign_app import KEEP, RETRY, app
from circumstances import SECOND, Circumstances

from loads.oracle import check_created, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, run_recorded, wait_for_room

NAME = "expiry"
EXPIRES = 1.0
LATE_NS = SECOND
"""Between the server's decision and the first line of the task, on a busy machine."""
queue = app.queue(NAME, partitions=1, concurrency=2, retry=RETRY, keep=KEEP, alert=False)


@queue.task(expires=EXPIRES)
async def perishable(seconds: float) -> None:
    with run_recorded(NAME):
        await asyncio.sleep(seconds)


async def produce() -> None:
    """More at once than can start in time."""
    luck = random.Random()
    while True:
        await wait_for_room(queue)
        await asyncio.gather(*(_ask(luck.choice((0.01, 0.3))) for _ in range(luck.choice((1, 2, 3, 30)))))
        await asyncio.sleep(luck.uniform(0.5, 4.0))


async def _ask(seconds: float) -> None:
    id = fresh_id(NAME)
    await ask(NAME, id, lambda: perishable.options(id=id, expires=EXPIRES).enqueue(seconds=seconds))


def check(events: list[Event], circumstances: Circumstances) -> Report:
    """Nobody knows from outside whether one that never started had its chance: the totals of the queue say that (campaign.py)."""
    report = Report(NAME)
    asked = {event.job for event in events if event.what == "asked"}
    told = {event.job: event.at for event in events if event.what == "told"}
    done = {event.job for event in events if event.what == "done"}
    first: dict[str, Event] = {}
    for event in events:
        if event.what == "began":
            first.setdefault(event.job, event)
    report.counts = {"jobs": len(told), "expired": len(told.keys() - first.keys())}
    report.faults += [f"{job} ran, but nobody asked for it" for job in sorted(first.keys() - asked)]
    report.faults += [f"{job} is lost after its start" for job in sorted(first.keys() & told.keys() - done)]
    for job, event in first.items():
        late = event.at - told.get(job, event.at) - int(EXPIRES * SECOND)
        if late <= LATE_NS:
            continue
        if circumstances.was_taken_over(event.process, told[job], event.at):
            report.excused["taken over"] = report.excused.get("taken over", 0) + 1
        elif any(told[job] <= at <= event.at for at in circumstances.deaths.values()):
            # It may have started there in time, a moment before the process was killed.
            report.excused["killed"] = report.excused.get("killed", 0) + 1
        else:
            report.faults.append(f"{job} started {late / SECOND:.1f} s after it had expired")
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    return report
