"""Rates: a queue that may start 20 jobs in any second, over all workers, and gets more than that."""

from __future__ import annotations

import asyncio
import random

from campaign_app import KEEP, RETRY, app
from circumstances import SECOND, Circumstances

import qbull
from loads.oracle import check_created, check_delivery, check_never_twice, runs_of
from loads.record import Event, Report, ask, fresh_id, run_recorded, wait_for_room

NAME = "rates"
COUNT = 20
queue = app.queue(
    NAME, partitions=2, concurrency=6, rate=qbull.Rate(COUNT, per=1), retry=RETRY, keep=KEEP, alert=False
)


@queue.task
async def rated() -> None:
    with run_recorded(NAME):
        pass


async def produce() -> None:
    luck = random.Random()
    while True:
        await wait_for_room(queue)
        ids = [fresh_id(NAME) for _ in range(luck.randint(1, 40))]
        await asyncio.gather(*(ask(NAME, id, lambda id=id: rated.options(id=id).enqueue()) for id in ids))
        await asyncio.sleep(luck.uniform(0.0, 7.0))


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, events)
    check_created(report, events)
    check_never_twice(report, runs_of(events))
    starts = [event.at for event in events if event.what == "began"]
    report.counts["starts"] = len(starts)
    most = first = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= SECOND:
            first += 1
        many = last - first + 1
        if many <= COUNT:
            most = max(most, many)
        elif circumstances.failed_over(starts[first], at):
            report.excused["failover"] = report.excused.get("failover", 0) + 1
        else:
            report.faults.append(f"{many} starts within {(at - starts[first]) / 1e9:.3f} s")
    report.counts["most in a second"] = most
    return report
