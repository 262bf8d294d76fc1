"""cpu=True: ordered jobs in processes of their own. Such a process ends with its worker, and starts nothing after its worker's death."""

from __future__ import annotations

import os
import time

from campaign_app import KEEP, RETRY, app
from circumstances import Circumstances

from loads.keyed import check_keyed, lot, produce_keyed
from loads.record import Event, Report, run_recorded

NAME = "cpu"
queue = app.queue(NAME, order="key", partitions=2, concurrency=1, retry=RETRY, keep=KEEP, alert=False)
ORPHAN_NS = 1_000_000_000
"""A killed process and its children are gone by then, on a busy machine too."""


@queue.task(cpu=True, key="{key}", id="cpu:{key}:{number}")
def cpu_step(key: str, number: int) -> None:
    with run_recorded(NAME, key, number, worker=os.getppid()) as attempt:
        draw = lot(key, number)
        time.sleep(draw % 700 / 1000 if draw % 6 == 0 else 0.0)
        if draw % 10 == 0 and attempt == 1:
            raise ValueError("not yet")


async def produce() -> None:
    await produce_keyed(NAME, queue, lambda key, n: cpu_step.enqueue(key=key, number=n), keys=5, pause=0.4)


def check(events: list[Event], circumstances: Circumstances) -> Report:
    """The process of a job shares the fate of its worker: its death, and that it was frozen or cut off."""
    workers = {event.process: event.facts["worker"] for event in events if event.what == "began"}
    for process, worker in workers.items():
        circumstances.follow(process, worker)
    report = check_keyed(NAME, events, circumstances)
    report.counts["processes"] = len(workers)
    report.faults += [
        f"{event.job}: {event.what} in process {event.process} after the death of its worker"
        for event in events
        if event.process in workers and circumstances.is_dead(workers[event.process], event.at - ORPHAN_NS)
    ]
    return report
