"""Schedules: twenty of them, each ticks every second. Each tick is one job, none is missed."""

from __future__ import annotations

import os
from collections import defaultdict

from campaign_app import KEEP_ALL, RETRY, app
from circumstances import Circumstances

import qbull
from loads.record import Event, Report, note

NAME = "schedules"
BELLS = int(os.environ.get("CHAOS_BELLS", "20"))
queue = app.queue("bells", partitions=4, concurrency=5, retry=RETRY, keep=KEEP_ALL, alert=False)


@queue.task
async def ring(bell: int) -> None:
    job = qbull.current_job()
    assert job.planned_at is not None
    note(NAME, "done", job.id, str(bell), int(job.planned_at.timestamp()))


def declare_schedules() -> None:
    for number in range(BELLS):
        name, args = f"bell-{number}", {"bell": number}
        if number % 2:
            queue.cron(every=1, name=name, args=args, catch_up="all")(ring)
        else:
            queue.cron("* * * * * *", name=name, args=args, catch_up="all")(ring)


def check(events: list[Event], circumstances: Circumstances) -> Report:
    report = Report(NAME)
    rung: dict[tuple[int, int], set[str]] = defaultdict(set)
    for event in events:
        rung[int(event.key), event.n].add(event.job)
    if not rung:
        return report
    first = {bell: min(at for other, at in rung if other == bell) for bell in {bell for bell, _ in rung}}
    since = max(first.values())
    ticks = [(bell, at) for bell in range(BELLS) for at in range(since, circumstances.ticks_until + 1)]
    missed = [tick for tick in ticks if tick not in rung]
    doubled = [tick for tick, jobs in rung.items() if len(jobs) > 1]
    report.counts = {"ticks": len(ticks), "missed": len(missed), "doubled": len(doubled)}
    report.faults += [f"bell {bell} did not ring at {at}" for bell, at in missed]
    report.faults += [f"bell {bell} rang twice for {at}" for bell, at in doubled]
    return report
