"""Priorities: bursts of urgent and of patient jobs, mixed. The urgent ones of a burst start first, but for what is fetched already.

All jobs of a burst are due in the same moment. Of all pairs of an urgent and a patient job in one burst, few may start the wrong way round:
those that a worker had fetched, and those that a dead worker held. Without priorities it would be half of them. A pair counts only if the
urgent job was acknowledged when the patient one started; on a busy machine some are sent later than that.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from campaign_app import KEEP, RETRY, app
from circumstances import NEVER, Circumstances

import qbull
from loads.oracle import check_delivery, check_never_twice, runs_of
from loads.record import LIFE, Event, Report, note, run_recorded, wait_for_room

NAME = "priorities"
BURST = 30
WRONG = 0.25
"""At most so many of all pairs."""
ENOUGH = 20
"""With fewer bursts the pairs are not judged."""
queue = app.queue(NAME, partitions=1, concurrency=1, retry=RETRY, keep=KEEP, alert=False)


@queue.task
async def timely(burst: str, priority: int) -> None:
    with run_recorded(NAME, burst, priority):
        await asyncio.sleep(0.005)


async def produce() -> None:
    luck, number = random.Random(), 0
    while True:
        await wait_for_room(queue)
        burst = f"{LIFE}-{number}"
        number += 1
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        await asyncio.gather(*(_ask(burst, n, 9 if n < BURST // 2 else 1, due) for n in range(BURST)))
        await asyncio.sleep(luck.uniform(3.0, 6.0))


async def _ask(burst: str, n: int, priority: int, due: datetime) -> None:
    """The patient ones are sent first, and all are due in the same moment."""
    id = f"{NAME}:{burst}:{n}"
    call = timely.options(id=id, priority=priority, at=due)
    note(NAME, "asked", id, burst, priority)
    while True:
        try:
            await call.enqueue(burst=burst, priority=priority)
        except qbull.ServerError as error:
            note(NAME, "error", id, burst, error=type(error).__name__, text=str(error)[:300])
            await asyncio.sleep(0.05)
            continue
        note(NAME, "told", id, burst, priority, created=True)
        return


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    check_delivery(report, events)
    check_never_twice(report, runs_of(events))
    bursts: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event.what == "began":
            bursts[event.key].setdefault(event.job, event)
    told = {event.job: event.at for event in events if event.what == "told"}
    pairs = wrong = 0
    for starts in bursts.values():
        urgent = [event for event in starts.values() if event.n == 1]
        patient = [event.at for event in starts.values() if event.n == 9]
        for event in urgent:
            known = [at for at in patient if told.get(event.job, NEVER) < at]
            pairs += len(known)
            wrong += sum(at < event.at for at in known)
    report.counts["bursts"] = len(bursts)
    report.counts["percent of pairs the wrong way round"] = round(100 * wrong / pairs, 1) if pairs else 0
    if len(bursts) >= ENOUGH and wrong > WRONG * pairs:
        report.faults.append(
            f"{wrong} of {pairs} pairs of an urgent and a patient job started the wrong way round"
        )
    return report
